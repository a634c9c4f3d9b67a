"""The kernel compiled for GPUs that are not here: what its instructions say, and how many programs there are."""

import re

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed; it is for Linux only")

from phasor import RotarySpec, Rotation
from phasor.axes import Sections
from phasor.tables import Phases

from . import assembly
from .conftest import INTERPRETED

pytestmark = pytest.mark.skipif(INTERPRETED, reason="the interpreter compiles nothing")

SPECS = {
    "halves": RotarySpec(head_dim=128),
    "interleaved": RotarySpec(head_dim=128, interleaved=True),
    "partial": RotarySpec(head_dim=128, rotary_dim=64),
    "trailing": RotarySpec(head_dim=192, rotary_dim=64, trailing=True, interleaved=True),
    "permuted": RotarySpec(head_dim=64, interleaved=True, permuted=True),
    "blocks": RotarySpec(head_dim=64, blocks=2),
    "three axes": RotarySpec(head_dim=128, axes=Sections((16, 24, 24))),
    "80 channels": RotarySpec(head_dim=80),
}
BUDGET = {"phases": 1112, "tables": 731 + 2 * 64}  # per thread, for 64 pairs: see test_the_instructions_per_pair


def launched(spec, *, tables=False, heads=(32, 8), tokens=8192, batch=1, dtype=torch.bfloat16, tensor_format="bhsd"):
    """One prefill of Llama 3 8B, unless told otherwise."""
    of_q, of_k = (
        torch.empty((batch, h, tokens, spec.head_dim) if tensor_format == "bhsd" else (batch, tokens, h, spec.head_dim),
                    dtype=dtype, device="meta")
        for h in heads
    )  # fmt: skip
    axes = () if spec.axes.count == 1 else (spec.axes.count,)
    positions = torch.empty(*axes, tokens, dtype=torch.int64, device="meta")
    angles = Rotation.at(spec, positions) if tables else Phases(spec, positions)
    return assembly.recorded(of_q, of_k, angles, tensor_format)


def check(found, spec, widest, tables=False):
    assert found.spilled == 0
    narrow = {name: n for name, n in found.memory.items() if not name.endswith(widest)}
    # positions: eight bytes of each row and axis, and steps of less than two vectors; tables once for all heads, where
    # Triton does not know that their rows begin at multiples of 16 bytes
    assert sum(narrow.values()) <= (16 if tables and spec.pairs % 16 else 2 * spec.axes.count), narrow
    if not spec.permuted:  # whose channels change places among threads
        assert (found.shared, found.barriers) == (0, 0)
    fused = [name for name in found.instructions if re.match(r"FFMA|v_(pk_)?(fma|fmac|mad)_f32|v_fmac_f32|MUFU", name)]
    assert not fused, f"fused or approximate: {fused}"
    assert ".ftz" not in found.ptx


def check_offsets(ttir):
    """32-bit products are of constants, channels and program numbers: no stride, no batch, no head."""
    made = {name: re.findall(r"%\w+", rest) for name, rest in re.findall(r"(%\w+) = (.*?)(?: : | loc)", ttir)}

    def arguments(value):
        return set().union(*map(arguments, made[value])) if value in made else {value}

    products = re.findall(r"arith\.muli (%\w+), (%\w+) : (?:tensor<[^>]*x)?i32", ttir)
    assert products, "the parts of a tile are numbered by at least one"
    assert set().union(*(arguments(value) for pair in products for value in pair)) == set()


@pytest.mark.parametrize("name", ["halves", "interleaved"])
def test_for_an_h200(name):
    found = assembly.compiled(launched(SPECS[name]), assembly.TARGETS["sm_90"])
    check(found, SPECS[name], ".128")
    check_offsets(found.ttir)


@pytest.mark.parametrize("angles", ["phases", "tables"])
def test_the_instructions_per_pair(angles):
    """Of a program of 16 tokens and 8 heads, 64 pairs per thread, on an H200.

    A published prototype whose products and sums are fused takes 930 with phases and 731 with tables; not fused, for
    the bits of the reference, it takes 1112 with phases, and two more per pair are 859 with tables.
    """
    spec = SPECS["halves"]
    found = assembly.compiled(launched(spec, tables=angles == "tables"), assembly.TARGETS["sm_90"])
    check(found, spec, ".128")
    assert found.count <= BUDGET[angles]


@pytest.mark.slow
@pytest.mark.parametrize("tables", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("target", assembly.TARGETS)
def test_for_every_gpu(target, name, dtype, tables, monkeypatch):
    monkeypatch.setattr("phasor.kernels.gpu.launch.TILE", 8 * 4 * assembly.TARGETS[target].warp_size)
    found = assembly.compiled(launched(SPECS[name], tables=tables, dtype=dtype), assembly.TARGETS[target])
    check(found, SPECS[name], "x4" if target == "gfx942" else ".128", tables)
    check_offsets(found.ttir)


@pytest.mark.slow
@pytest.mark.parametrize("tensor_format", ["bhsd", "bshd"])
def test_many_batches(tensor_format):
    """Rows are told apart by a division, and offsets stay in 64 bits: q has 2**33 elements."""
    call = launched(SPECS["halves"], batch=256, tensor_format=tensor_format)
    found = assembly.compiled(call, assembly.TARGETS["sm_90"])
    assert (found.spilled, found.shared) == (0, 0)
    check_offsets(found.ttir)


GRIDS = {  # batch, tokens, heads -> programs: tiles of 16 rows, groups of up to 8 heads of q or of k
    "no tokens": ((1, 0, (32, 8)), None),
    "no batch": ((0, 5, (32, 8)), None),
    "no heads": ((1, 5, (0, 0)), None),
    "no heads of q": ((1, 16, (0, 8)), (1, 1)),
    "one head": ((1, 16, (1, 1)), (1, 2)),
    "one token": ((1, 1, (32, 8)), (1, 5)),
    "one token more than a tile": ((1, 17, (32, 8)), (2, 5)),
    "rows of several batches share a tile": ((256, 1, (32, 8)), (16, 5)),
    "heads that fill no group": ((1, 16, (28, 4)), (1, 5)),
    "one head of k": ((1, 16, (71, 1)), (1, 10)),
    "2**31 elements of q": ((1, 2**19, (32, 8)), (2**15, 5)),
    "2**36 elements of q": ((16, 2**20, (32, 8)), (2**20, 5)),
}


@pytest.mark.parametrize("given, programs", GRIDS.values(), ids=GRIDS)
def test_the_grid(given, programs):
    batch, tokens, heads = given
    if programs is None:
        with pytest.raises(ValueError, match="not enough values to unpack"):
            launched(SPECS["halves"], batch=batch, tokens=tokens, heads=heads)
        return
    grid, _, named = launched(SPECS["halves"], batch=batch, tokens=tokens, heads=heads)
    assert grid == programs
    assert named["ROWS"] * grid[0] >= batch * tokens > named["ROWS"] * (grid[0] - 1)
    assert named["ROWS"] * grid[0] < 2**31 and grid[1] < 2**16
    assert named["EVEN"] == all(h % named["HEADS"] == 0 for h in heads)
