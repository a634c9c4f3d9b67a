"""Host time of the Triton kernel without a GPU: Triton's own launcher, over a driver that counts launches.

    python benchmarks/gpu_host.py [--rounds 30] [--json]

A small library stands in place of libcuda: it takes compiled code, and launches nothing. So everything that Python and
Triton do for a call is done, and timed: phasor's checks, the new tensors, the choice of the compiled code, and the packing
of its arguments. Tensors lie on the CPU, whose allocator takes about as long as that of CUDA. What a driver itself needs
to put a launch into its queue (2 to 3 us) is not in it.
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
int cuPointerGetAttributes(unsigned n, int *attributes, void **to, uint64_t at) { return 0; }
int cuCtxGetCurrent(void **to) { *to = (void *)1; return 0; }
int cuCtxSetCurrent(void *context) { return 0; }
int cuCtxGetLimit(size_t *to, int limit) { *to = 0; return 0; }
int cuCtxSetLimit(int limit, size_t value) { return 0; }
int cuDeviceGet(int *to, int n) { *to = n; return 0; }
int cuDeviceGetAttribute(int *to, int attribute, int device) { *to = attribute == 16 ? 132 : 232448; return 0; }
int cuDevicePrimaryCtxRetain(void **to, int device) { *to = (void *)1; return 0; }
int cuDriverGetVersion(int *to) { *to = 12080; return 0; }
int cuFuncGetAttribute(int *to, int attribute, void *f) { *to = attribute == 0 ? 1024 : 0; return 0; }
int cuFuncSetAttribute(void *f, int attribute, int value) { return 0; }
int cuFuncSetCacheConfig(void *f, int config) { return 0; }
int cuGetErrorString(int error, const char **to) { *to = "none"; return 0; }
int cuModuleGetFunction(void **to, void *module, const char *name) { *to = (void *)1; return 0; }
int cuModuleLoadData(void **to, const void *image) { *to = (void *)1; return 0; }
int cuOccupancyMaxActiveClusters(int *to, void *f, const void *config) { *to = 1; return 0; }
int cuTensorMapEncodeTiled() { return 0; }
int cuTensorMapEncodeIm2col() { return 0; }
"""


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
            self.get_current_device = torch._C._get_accelerator and (lambda: 0)
            self.get_current_stream = lambda device: 0
            self.set_current_device = lambda device: None
            self.get_device_capability = lambda device=0: (9, 0)

        def get_current_target(self):
            return GPUTarget("cuda", 90, 32)

    triton.runtime.driver.set_active(Driver())
    return cuda


def calls():
    """One layer of one decoded token of Llama 3 8B, in each way."""
    from phasor import RotarySpec, Rotation, apply_rotary_qk, rotate

    spec = RotarySpec(head_dim=128, base=5e5)
    q, k = (torch.randn(1, h, 1, 128, dtype=torch.bfloat16) for h in (32, 8))
    at = torch.tensor([100])
    short, rotation = at.int(), Rotation.at(spec, at)
    return {
        "given": lambda: apply_rotary_qk(q, k, rotation, kernel="triton"),
        "from positions": lambda: rotate(q, k, at, spec, kernel="triton"),
        "from int32 positions": lambda: rotate(q, k, short, spec, kernel="triton"),
        "in place": lambda: apply_rotary_qk(q, k, rotation, kernel="triton", out=(q, k)),
    }


def host_time(call, rounds, each=200):
    """Microseconds of one call: the median of many rounds."""
    for _ in range(50):
        call()
    times = []
    for _ in range(rounds):
        begin = time.thread_time()
        for _ in range(each):
            call()
        times.append((time.thread_time() - begin) / each * 1e6)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        cuda = stand_in(folder)
        from phasor.rotary.kernels.triton import kernel

        kernel.INTERPRETED = True  # take tensors of a CPU for those of a GPU
        launches, grid = ctypes.c_long.in_dll(cuda, "launches"), (ctypes.c_uint * 3).in_dll(cuda, "last_grid")
        rows = {}
        with torch.no_grad():
            for name, call in calls().items():
                call()
                before = launches.value
                call()
                counted, programs = launches.value - before, grid[0] * grid[1] * grid[2]
                rows[name] = {"us": host_time(call, asked.rounds), "launches": counted, "programs": programs}
    if asked.json:
        print(json.dumps(rows))
        return
    for name, row in rows.items():
        print(f"{name:22} {row['us']:6.1f} us  {row['launches']} launch  {row['programs']} programs")


if __name__ == "__main__":
    main()
