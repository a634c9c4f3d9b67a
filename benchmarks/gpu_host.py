"""Host time of the Triton kernel without a GPU: Triton's own launcher, over a driver that counts launches.

    python benchmarks/gpu_host.py [--rounds 30] [--json]

A small library stands in place of libcuda: it takes compiled code, and launches nothing. So everything that Python and
Triton do for a call is done, and timed: phasor's checks, the new tensors, the choice of the compiled code, and the
packing of its arguments. Tensors lie on the CPU, whose allocator takes about as long as that of CUDA. What a driver
itself needs to put a launch into its queue is not in it.
"""

import argparse
import ctypes
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from torch.utils._pytree import tree_map_only

STAND_IN = """
#include <stdint.h>
#include <string.h>
long launches = 0;
unsigned last_grid[3];
int cuLaunchKernelEx(const unsigned *config, void *f, void **params, void **extra) {
  launches++;
  memcpy(last_grid, config, sizeof last_grid);
  return 0;
}
int cuPointerGetAttribute(void **to, int attribute, uint64_t at) { *to = (void *)at; return 0; }
int cuCtxGetCurrent(void **to) { *to = (void *)1; return 0; }
int cuDeviceGetAttribute(int *to, int attribute, int device) { *to = attribute == 16 ? 132 : 232448; return 0; }
int cuDevicePrimaryCtxRetain(void **to, int device) { *to = (void *)1; return 0; }
int cuDriverGetVersion(int *to) { *to = 12080; return 0; }
int cuFuncGetAttribute(int *to, int attribute, void *f) { *to = attribute == 0 ? 1024 : 0; return 0; }
int cuModuleGetFunction(void **to, void *module, const char *name) { static long n; *to = (void *)++n; return 0; }
int cuModuleLoadData(void **to, const void *image) { *to = (void *)1; return 0; }
int cuOccupancyMaxActiveClusters(int *to, void *f, const void *config) { *to = 1; return 0; }
int cuCtxGetLimit(unsigned long *to, int limit) { *to = 0; return 0; }
int cuDeviceGet(int *to, int n) { *to = n; return 0; }
int cuGetErrorString(int error, const char **to) { *to = "none"; return 0; }
""" + "".join(
    f"int {name}() {{ return 0; }}\n"
    for name in (
        "cuPointerGetAttributes", "cuCtxSetCurrent", "cuCtxSetLimit", "cuFuncSetAttribute", "cuFuncSetCacheConfig",
        "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col",
    )
)  # fmt: skip


def stand_in(folder: str) -> ctypes.CDLL:
    """Triton's driver over a libcuda that does nothing, for an H100 or H200; before phasor looks for one."""
    library = Path(folder) / "libcuda.so.1"
    source = Path(folder) / "stand_in.c"
    source.write_text(STAND_IN)
    subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
    (Path(folder) / "libcuda.so").symlink_to(library)
    os.environ["TRITON_LIBCUDA_PATH"] = folder
    cuda = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)

    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia import driver

    class Driver(driver.CudaDriver):
        def __init__(self):
            self.utils, self.launcher_cls = driver.CudaUtils(), driver.CudaLauncher
            self.get_current_device = lambda: 0
            self.get_current_stream = lambda device: 0
            self.set_current_device = lambda device: None
            self.get_device_capability = lambda device=0: (9, 0)

        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

    triton.runtime.driver.set_active(Driver())
    return cuda


def calls():
    """One layer of one decoded token of Llama 3 8B, in each way."""
    from phasor import RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary_qk, rotate

    spec = RotarySpec(head_dim=128, base=5e5)
    q, k = (torch.randn(1, h, 1, 128, dtype=torch.bfloat16) for h in (32, 8))
    at, weight = torch.tensor([100]), torch.ones(128, dtype=torch.bfloat16)
    short, rotation = at.int(), Rotation.at(spec, at)
    return {
        "given": lambda: apply_rotary_qk(q, k, rotation, kernel="triton"),
        "from positions": lambda: rotate(q, k, at, spec, kernel="triton"),
        "from int32 positions": lambda: rotate(q, k, short, spec, kernel="triton"),
        "in place": lambda: apply_rotary_qk(q, k, rotation, kernel="triton", out=(q, k)),
        "with a norm": lambda: apply_qk_norm_rotary(q, k, rotation, weight, weight, kernel="triton"),
    }


def microseconds(call, rounds, each=200):
    """Of one call, of the processor and not of the clock: the median of many rounds, and the least."""
    for _ in range(50):
        call()
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(each):
            call()
        times.append((time.thread_time() - begin) / each * 1e6)
    return {"us": statistics.median(times), "least": min(times)}


def timed(cuda, rounds):
    """Launches, programs and host time of each call; and two new tensors, as a measure of the machine."""
    launches, grid = ctypes.c_long.in_dll(cuda, "launches"), (ctypes.c_uint * 3).in_dll(cuda, "last_grid")
    rows = {}
    for name, call in calls().items():
        call()
        before = launches.value
        call()
        counted, programs = launches.value - before, grid[0] * grid[1] * grid[2]
        rows[name] = microseconds(call, rounds) | {"launches": counted, "programs": programs}
    x = torch.randn(1, 32, 1, 128, dtype=torch.bfloat16)
    rows["two new tensors"] = microseconds(lambda: (torch.empty_like(x), torch.empty_like(x)), rounds)
    return rows


def compared():
    """Whether the short way of each call hands the driver what the long way does, but for the addresses of new results.

    It is compared where Triton hands arguments to the driver, as numbers.
    """
    import triton

    from phasor.rotary.kernels.triton import plans

    utils = triton.runtime.driver.active.utils
    if not hasattr(utils, "launch"):  # before Triton 3.7 arguments are handed over in C
        return {}
    own, seen, same = utils.launch, [], {}

    def launch(*given):
        *_, (heads, *rest) = given
        seen.append((given[:3], given[4], tree_map_only(torch.Tensor, torch.Tensor.data_ptr, (heads[:2], *rest))))
        return own(*given)

    utils.launch = launch
    for kept in _kernel().device_caches.values():
        kept[0].clear()  # a launcher of before knows the other function
    for name, call in calls().items():
        plans.PLANS.clear()
        seen.clear()
        call()
        assert plans.PLANS, name
        call()
        same[name] = len(seen) == 2 and seen[0] == seen[1]
    utils.launch = own
    return same


def _kernel():
    from phasor.rotary.kernels.triton.rotate import rotate_heads

    return rotate_heads


def compiled_while_serving():
    """How much code a warm-up compiles for one spec, and how much more comes with batches and prompts of all sizes."""
    from phasor import RotarySpec, Rotation, apply_rotary_qk, rotate
    from phasor.kernels import warm_up

    def count():
        return sum(len(kept[0]) for kept in _kernel().device_caches.values())

    spec, before = RotarySpec(head_dim=64), count()
    warm_up(spec, 8, 2, device="cpu")
    warm = count()
    decoded = [(batch, 1) for batch in (1, 2, 3, 16, 17, 64)]
    for batch, tokens in (*decoded, *((1, n) for n in (7, 16, 1000, 4096)), (2, 33), (5, 64)):
        q, k = (torch.randn(batch, tokens, h, 64, dtype=torch.bfloat16).transpose(1, 2) for h in (8, 2))
        for at in (torch.arange(tokens), torch.arange(tokens + 1)[1:].expand(batch, tokens).clone()):
            rotate(q, k, at, spec)
            apply_rotary_qk(q, k, Rotation.at(spec, at))
    return {"by the warm-up": warm - before, "by serving": count() - warm}


def only_gpu():
    """Tensors of a CPU are taken for those of a GPU, and no other kernel is asked first."""
    from phasor.rotary import kernels
    from phasor.rotary.kernels.native import kernel as native
    from phasor.rotary.kernels.triton import kernel

    kernel.INTERPRETED = True
    native.OPEN = ()
    kernels.KERNELS[:] = [known for known in kernels.KERNELS if known.name != "native"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        cuda = stand_in(folder)
        only_gpu()
        rows, compiled = timed(cuda, asked.rounds), compiled_while_serving()
        same = compared()
    if asked.json:
        print(json.dumps({"calls": rows, "compiled": compiled, "same": same}))
        return
    for name, row in rows.items():
        counts = "  ".join(f"{row[what]} {what}" for what in ("launches", "programs") if what in row)
        print(f"{name:22} {row['us']:6.1f} us (least {row['least']:.1f})  {counts}")
    print(", ".join(f"{n} compiled {when}" for when, n in compiled.items()))


if __name__ == "__main__":
    main()
