"""Compiled code under a default device (``torch.set_default_device``), where a mode sees each call of torch."""

import re

import pytest
import torch

from house import PACKAGES, ROOT
from phasor import RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary_qkv, rotate
from phasor.encodings.heads import EfficientGlobalPointer
from phasor.rotary.axes import Sections

LAYOUTS = {
    "halves": {},
    "interleaved": {"interleaved": True},
    "blocks": {"blocks": 2},
    "permuted": {"interleaved": True, "permuted": True},
    "permuted, partial": {"interleaved": True, "permuted": True, "rotary_dim": 8},
    "partial": {"rotary_dim": 8},
    "sections": {"axes": Sections((3, 5))},
    "all at once": {"interleaved": True, "permuted": True, "rotary_dim": 8, "axes": Sections((1, 3))},
}
# Each is compiled for a second or more: the one that has all of them, now, and each alone later.
LATER = LAYOUTS.keys() - {"all at once"}
POSITIONS = torch.arange(5)


def same_compiled(call, *given):
    torch.compiler.reset()
    with torch.device("cpu"):
        got = torch.compile(call, fullgraph=True, backend="eager")(*given)
    torch.testing.assert_close(got, call(*given))


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] * (n in LATER)) for n in LAYOUTS])
def test_every_layout(name):
    spec = RotarySpec(head_dim=16, **LAYOUTS[name])
    positions = POSITIONS.expand(2, 5) if "axes" in LAYOUTS[name] else POSITIONS
    rotation = Rotation.at(spec, positions)
    same_compiled(lambda q, k: rotate(q, k, positions, spec), *torch.randn(2, 1, 2, 5, 16))
    same_compiled(lambda q, k: apply_qk_norm_rotary(q, k, rotation, None, None), *torch.randn(2, 1, 2, 5, 16))


def test_heads_side_by_side_and_packed():
    spec = RotarySpec(head_dim=16)
    rotation = Rotation.at(spec, POSITIONS)
    flat, packed = torch.randn(1, 5, 32), torch.randn(1, 5, 3, 2, 16)
    same_compiled(lambda q, k: rotate(q, k, POSITIONS, spec, tensor_format="bshd", num_heads=2), flat, flat)
    same_compiled(lambda qkv: apply_rotary_qkv(qkv, rotation), packed)


def test_heads_for_spans():
    same_compiled(EfficientGlobalPointer(8, 3, head_dim=4), torch.randn(2, 5, 8))


def test_no_method_is_called_that_cannot_be_traced_there():
    """`Tensor.unflatten` is torch's one method that calls that of its base class; `torch.unflatten` is the same."""
    files = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
    assert not [str(path) for path in files if re.search(r"(?<!\btorch)\.unflatten\(", path.read_text())]
