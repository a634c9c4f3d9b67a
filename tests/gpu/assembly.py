"""What Triton makes of a launch for a GPU that is not here: a launch is recorded on the meta device, then compiled."""

import re
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, make_backend
from triton.runtime.jit import create_function_from_signature

import limited
from phasor.rotary.kernels import ORDERS, Triton
from phasor.rotary.kernels.triton import launch, norm_backward, rotate

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
TOOLS = Path(triton.__file__).parent / "backends/nvidia/bin"


class Launches:
    """In place of the kernel: keeps what it is launched with."""

    def __init__(self):
        self.seen = []

    def __getitem__(self, grid):
        return lambda *values, **named: self.seen.append((grid, values, named))


def recorded(q, k, angles, tensor_format="bhsd", out=None, norm=None):
    """Grid, arguments and constants of the one launch that turns q and k, after a norm if there is one."""
    order = ORDERS[tensor_format]
    if norm is None:
        return only_launch(rotate, "rotate_heads", lambda: Triton().rotate(q, k, angles, order, out))
    return only_launch(rotate, "rotate_heads", lambda: Triton().norm_and_rotate(q, k, angles, order, norm, out))


def only_launch(module, kernel, call):
    """What a call launches, without running it."""
    launches = Launches()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, kernel, launches)
        call()
    (only,) = launches.seen
    return only


@dataclass
class Assembly:
    instructions: Counter  # without those that only fill space
    memory: Counter  # the full names of loads and stores
    spilled: int  # bytes of local memory and stack
    shared: int
    barriers: int
    late: int  # loads behind the first store
    registers: int
    ttir: str
    ptx: str = field(repr=False)

    @property
    def count(self) -> int:
        return self.instructions.total()


def compiled(launched, target, kernel=rotate.rotate_heads):
    """As Triton compiles it when it is called, by its own reading of arguments; of sizes for `back_heads` alone."""
    _, values, named = launched
    if kernel is not norm_backward.back_heads:
        values = map(launch._unseen, values)
    backend = make_backend(target)
    read = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, options = read(*values, **named)
    options, *source = kernel._pack_args(backend, options, bound, specialization, options)
    made = triton.compile(ASTSource(kernel, *source), target, options.__dict__)
    return _of_amd(made) if target.backend == "hip" else _of_nvidia(made)


def _of_nvidia(made):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:  # its own: two processes may make the same code
        cubin.write(made.asm["cubin"])
        cubin.flush()
        usage = _said_by("cuobjdump", "-res-usage", cubin.name)
        listing = _said_by("nvdisasm", "-c", cubin.name)
    numbers = {k: int(n) for k, n in re.findall(r"\b([A-Z]+):(\d+)", usage)}
    names = re.findall(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\d+\s+)?([A-Z][A-Z0-9_.]*)", listing)
    body = names[: len(names) - 1 - next(i for i, n in enumerate(reversed(names)) if n == "EXIT")]
    instructions = Counter(name.split(".")[0] for name in body if name != "NOP")
    memory = Counter(name for name in body if name.startswith(("LDG", "STG", "LDL", "STL", "ATOM", "RED.")))
    return Assembly(
        instructions, memory, numbers["STACK"] + numbers["LOCAL"], made.metadata.shared, instructions["BAR"],
        _late(body, "LDG", "STG"), numbers["REG"], made.asm["ttir"], made.asm["ptx"],
    )  # fmt: skip


def _late(names, loads, stores):
    first = next((i for i, name in enumerate(names) if name.startswith(stores)), len(names))
    return sum(name.startswith(loads) for name in names[first:])


def _said_by(tool, *arguments):
    done = limited.run([TOOLS / tool, *arguments], check=True)
    return done.stdout + done.stderr


def _of_amd(made):
    text = made.asm["amdgcn"]
    names = re.findall(r"^\s+([a-z]+_[a-z0-9_]+)", text.rpartition("s_endpgm")[0], re.MULTILINE)
    instructions = Counter(name for name in names if not name.startswith("s_nop"))
    memory = Counter(name for name in names if name.startswith(("global_", "buffer_", "scratch_", "flat_")))
    bytes_of = {key: int(n) for key, n in re.findall(r"\.(\w+):\s+(\d+)", text)}
    return Assembly(
        instructions, memory, bytes_of["private_segment_fixed_size"] + bytes_of["vgpr_spill_count"],
        made.metadata.shared, instructions["s_barrier"], _late(names, ("global_load", "buffer_load"),
        ("global_store", "buffer_store")), bytes_of["vgpr_count"], made.asm["ttir"], text,
    )  # fmt: skip
