"""The native kernel at the edges of what a tensor, a rotation and a call can be."""

import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from phasor import Layout, RotarySpec, Rotation, apply_rotary, rotate
from phasor.rotary.kernels.native import kernel as native

NATIVE = native._native
SPEC = RotarySpec(head_dim=8)
X = torch.randn(1, 2, 5, 8)

pytestmark = pytest.mark.skipif(NATIVE is None, reason="the native kernel was not built")


def constant(tokens, pairs):
    """A rotation of any size, whose tables are one number."""
    table = torch.ones(1, 1).expand(tokens, pairs)
    return {"cos": table, "sin": table}


VAST = 2**40
EMPTY = {
    "channels beyond a tile": ((0, 2, 5, 2**14), {}),
    "blocks beyond a tile": ((0, 2, 5, 1024), {"blocks": 512}),
    "no heads, any number of tokens": ((1, 0, VAST, 8), {}),
    "no heads, any number of batches and tokens": ((VAST, 0, VAST, 8), {}),
    "no batch, any number of tokens": ((0, 2, VAST, 8), {}),
}


@pytest.mark.parametrize("shape, layout", EMPTY.values(), ids=EMPTY)
def test_nothing_to_turn_costs_nothing(shape, layout):
    x = torch.empty([min(size, 1) for size in shape[:-1]] + [shape[-1]]).expand(shape)
    rotation = Rotation(**constant(shape[2], shape[3] // 2), layout=Layout(head_dim=shape[3], **layout))
    assert apply_rotary(x, rotation).shape == shape


def test_channels_beyond_all_memory():
    """Blocks so many that the size of their tables has no number: refused for want of memory, by who makes a result."""
    x = torch.empty(1, 1, 1, 1).expand(1, 1, 1, 2**62)
    rotation = Rotation(**constant(1, 2**61), layout=Layout(head_dim=2**62, blocks=2**61))
    with pytest.raises(RuntimeError):
        apply_rotary(x, rotation)


LAYOUT = {
    "head_dim": 8, "rotary_dim": 8, "trailing": False, "interleaved": False, "blocks": 1, "permuted": False,
}  # fmt: skip
NONSENSE = [
    {"rotary_dim": 16}, {"rotary_dim": 1}, {"rotary_dim": 7}, {"blocks": 3}, {"blocks": 8}, {"blocks": 0},
    {"head_dim": 2**70}, {"head_dim": -8}, {"rotary_dim": 8.0}, {"trailing": 1}, {"interleaved": True, "blocks": 2},
    {"permuted": True, "blocks": 2}, {"head_dim": None},
]  # fmt: skip


@pytest.mark.parametrize("changed", NONSENSE, ids=str)
def test_layouts_that_no_layout_is(changed):
    """What `Layout` itself refuses, from something that only looks like one."""
    fields = LAYOUT | changed
    pairs = 4 if changed.get("rotary_dim") not in (16, 1, 7) else max(1, changed["rotary_dim"] // 2)
    plan = NATIVE.plan(SimpleNamespace(**fields), 1.0, 1.0, struct.pack(f"{pairs}q", *range(pairs)), pairs)
    assert NATIVE.rotate(X, None, torch.arange(5), "bhsd", False, None, None, None, (plan,)) is None


def test_plans_of_nothing():
    for steps, pairs in ((b"", 4), (b"1234567", 1), (bytes(8), 0), (bytes(8), -1), (bytes(8 * 513), 513)):
        with pytest.raises(ValueError, match="steps must be"):
            NATIVE.plan(SPEC.layout, 1.0, 1.0, steps, pairs)


def test_several_threads_at_once():
    """Each with a layout of its own, and the lock of the interpreter given away while they work."""
    specs = [RotarySpec(head_dim=64, rotary_dim=width, interleaved=width % 3 == 0) for width in (16, 24, 48, 64)]
    q, positions = torch.randn(1, 8, 100, 64), torch.arange(100)
    expected = [rotate(q, None, positions, spec, kernel="reference")[0] for spec in specs]

    def turned(at):
        rotation = Rotation.at(specs[at], positions)
        for _ in range(200):
            both = apply_rotary(q, rotation), rotate(q, None, positions, specs[at])[0]
            if not all(torch.equal(y, expected[at]) for y in both):
                return False
        return True

    with ThreadPoolExecutor(len(specs)) as threads:
        assert all(threads.map(turned, range(len(specs))))


def test_no_line_of_c_is_longer_than_120() -> None:
    folder = Path(__file__).resolve().parents[2] / "src/phasor/rotary/kernels/native/c"
    lines = [
        (path.name, i, line) for path in folder.iterdir() for i, line in enumerate(path.read_text().splitlines(), 1)
    ]
    assert len(lines) > 1000 and [place for *place, line in lines if len(line) > 120] == []
