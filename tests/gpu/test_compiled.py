"""The kernel compiled for GPUs that are not here: what its instructions say, and how many programs there are."""

import re
from collections import Counter
from types import SimpleNamespace

import pytest
import torch

pytest.importorskip("triton", reason="triton is not installed; it is for Linux only")

from phasor import RotarySpec, Rotation
from phasor.rotary.axes import Sections
from phasor.rotary.kernels import ORDERS, Norm
from phasor.rotary.kernels.triton import kernel as triton
from phasor.rotary.kernels.triton import launch, norm_backward, rotate
from phasor.rotary.tables import Phases

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


def check(found, spec, widest, dtype=torch.bfloat16):
    """Heads are read and written by whole vectors, in registers only; what is read once per program need not be."""
    assert found.spilled == 0
    stores = Counter(
        {name: n for name, n in found.memory.items() if name.startswith(("ST", "global_store", "buffer_store"))}
    )
    loads = found.memory - stores
    wide = sum(n for name, n in loads.items() if name.endswith(widest))
    assert stores and all(name.endswith(widest) for name in stores), stores
    assert wide >= stores.total() and loads.total() - wide <= 7 + 9 * spec.axes.count, loads
    fused = [name for name in found.instructions if re.match(r"FFMA|v_(pk_)?(fma|fmac|mad)_f32|v_fmac_f32|MUFU", name)]
    assert not fused, f"fused or approximate: {fused}"
    assert ".ftz" not in found.ptx
    if spec.permuted:  # channels change places among threads
        return
    if spec.axes.count > 1 or (dtype == torch.float32 and spec.interleaved):
        assert found.barriers <= 7  # cos and sin change threads once, before the first head
    else:
        assert (found.shared, found.barriers) == (0, 0)


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
    assert found.late == 0 and found.registers <= 128  # 16 vectors are on their way before the first is stored


def test_one_token():
    """A warp for four heads, loads before stores, and a quarter of the instructions of 16 tokens and 8 heads."""
    call = launched(SPECS["halves"], tokens=1)
    found = assembly.compiled(call, assembly.TARGETS["sm_90"])
    assert call[0] == (1, 10) and call[2]["num_warps"] == 1
    assert (found.spilled, found.shared, found.late) == (0, 0, 0)
    assert found.count <= BUDGET["phases"] // 4


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
    monkeypatch.setattr("phasor.rotary.kernels.triton.launch.TILE", 8 * 4 * assembly.TARGETS[target].warp_size)
    found = assembly.compiled(launched(SPECS[name], tables=tables, dtype=dtype), assembly.TARGETS[target])
    check(found, SPECS[name], "x4" if target == "gfx942" else ".128", dtype)
    check_offsets(found.ttir)


GRIDS = {  # batch, tokens, heads -> programs, 264 or more: of 16 rows and 8 heads of q or of k, 1 and 8, or 1 and 4
    "no tokens": ((1, 0, (32, 8)), None),
    "no batch": ((0, 5, (32, 8)), None),
    "no heads": ((1, 5, (0, 0)), None),
    "no heads of q": ((1, 16, (0, 8)), (16, 2)),
    "one head": ((1, 16, (1, 1)), (16, 2)),
    "one token": ((1, 1, (32, 8)), (1, 10)),
    "16 tokens": ((1, 16, (32, 8)), (16, 10)),
    "one row less than enough of 8 heads": ((1, 52, (32, 8)), (52, 10)),
    "enough of 8 heads": ((1, 53, (32, 8)), (53, 5)),
    "one tile less than enough of 16 rows": ((1, 832, (32, 8)), (832, 5)),
    "enough of 16 rows": ((1, 833, (32, 8)), (53, 5)),
    "rows of several batches share a tile": ((1024, 1, (32, 8)), (64, 5)),
    "heads that fill no group": ((1, 2**14, (28, 4)), (2**10, 5)),
    "one head of k": ((1, 2**14, (71, 1)), (2**10, 10)),
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
    grid, (*_, cut), _ = launched(SPECS["halves"], batch=batch, tokens=tokens, heads=heads)
    assert grid == programs
    assert cut.rows * grid[0] >= batch * tokens > cut.rows * (grid[0] - 1)
    assert cut.rows * grid[0] < 2**31 and grid[1] < 2**16
    assert cut.even == all(h % cut.heads == 0 for h in heads)


def test_more_rows_than_it_counts():
    x, positions = torch.empty(1, 1, 2**31, 2, device="meta"), torch.empty(2**31, dtype=torch.int64, device="meta")
    angles = Phases(RotarySpec(head_dim=2), positions)
    assert "fewer than 2,147,418,112" in triton.unsuited(x, None, angles)
    assert triton.unsuited(x[:, :, : 2**30], None, angles) == ""


def with_a_norm(spec, dtype):
    """A prefill with weights."""
    q, k = (torch.empty(1, h, 8192, spec.head_dim, dtype=dtype, device="meta") for h in (32, 8))
    rotation = Rotation.at(spec, torch.empty(8192, dtype=torch.int64, device="meta"))
    norm = Norm(*torch.empty(2, spec.head_dim, dtype=dtype, device="meta"), 1e-6, rounding="before_weight")
    return assembly.recorded(q, k, rotation, norm=norm), rotate.rotate_heads


def back_of_a_norm(spec, dtype):
    """The launch for the gradients of a prefill with weights."""
    q, k, dq, dk = (torch.empty(1, h, 8192, spec.head_dim, dtype=dtype, device="meta") for h in (32, 8, 32, 8))
    rotation = Rotation.at(spec, torch.empty(8192, dtype=torch.int64, device="meta"))
    norm = Norm(*torch.empty(2, spec.head_dim, dtype=dtype, device="meta"), 1e-6)
    given = ([q, k], [dq, dk], rotation, ORDERS["bhsd"], norm, True)
    call = assembly.only_launch(norm_backward, "back_heads", lambda: norm_backward.rotate_back(*given))
    return call, norm_backward.back_heads


@pytest.mark.parametrize("form, barriers, sums", [(with_a_norm, 0, 0), (back_of_a_norm, 23, 4)])
def test_norms_of_heads_that_turn_in_part_on_an_h200(form, barriers, sums):
    """In registers only, and heads by whole vectors.

    Weights and their ``sums``, once in a program, need not be; sums have one order, so nothing is atomic.
    """
    call, kernel = form(SPECS["partial"], torch.bfloat16)
    found = assembly.compiled(call, assembly.TARGETS["sm_90"], kernel)
    assert found.spilled == 0 and found.barriers <= barriers
    narrow = Counter({name: count for name, count in found.memory.items() if not name.endswith(".128")})
    assert not any(name.startswith(("LDL", "STL", "RED")) or "ATOM" in name for name in found.memory)
    stores = sum(count for name, count in narrow.items() if name.startswith("ST"))
    assert stores <= sums and narrow.total() - stores <= 7
    assert "fma.rn.f32" not in found.ptx  # the assembler's own, inside a rounded division, stay
    check_offsets(found.ttir)


def test_each_gpu_has_its_own_number_of_programs(monkeypatch):
    """Two for each of its processors: an H100 has 132 of them, an L4 58."""
    processors = {torch.device("cuda:0"): 132, torch.device("cuda:1"): 58}
    about = lambda device: SimpleNamespace(multi_processor_count=processors[device])  # noqa: E731
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", about)
    launch._enough.cache_clear()
    try:
        assert [launch.enough_for(device) for device in processors] == [264, 116]
    finally:
        launch._enough.cache_clear()
