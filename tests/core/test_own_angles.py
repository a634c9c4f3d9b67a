"""Angles as models form them: their tables are those of the lines that diffusers has, written out here."""

import json
import math

import pytest
import torch
from torch import Tensor

from phasor import RotarySpec, Rotation
from phasor.rotary.axes import Axial
from phasor.scaling import Linear

SIZES = (16, 24, 24)
AT = torch.stack([torch.tensor([0, 1, 2, 33, 511]), torch.tensor([0, 3, 90, 127, 1]), torch.tensor([7, 0, 61, 5, 127])])


def lumina(dim: int, base: float, at: Tensor) -> tuple[Tensor, Tensor]:
    """`get_1d_rotary_pos_embed` with ``freqs_dtype=torch.float64``."""
    angles = torch.outer(at, 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim)))
    return angles.cos(), angles.sin()


def z_image(dim: int, base: float, at: Tensor) -> tuple[Tensor, Tensor]:
    frequencies = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float64) / dim))
    angles = torch.outer(at.double(), frequencies).float()
    return angles.cos(), angles.sin()


def kandinsky(dim: int, base: float, at: Tensor) -> tuple[Tensor, Tensor]:
    frequencies = torch.exp(-math.log(base) * torch.arange(start=0, end=dim // 2, dtype=torch.float32) / (dim // 2))
    angles = torch.outer(at.float(), frequencies)
    return angles.cos(), angles.sin()


WAYS = {
    "float64": (lumina, "float64"), "float64_rounded": (z_image, "float32"), "float32_exp": (kandinsky, "float32"),
}  # fmt: skip


@pytest.mark.parametrize("base", [256.0, 10_000.0])
@pytest.mark.parametrize("angles", WAYS)
def test_tables_are_those_of_the_models(angles: str, base: float) -> None:
    form, tables = WAYS[angles]
    spec = RotarySpec(head_dim=2 * sum(SIZES), base=base, axes=Axial(SIZES), angles=angles, tables=tables)  # type: ignore[arg-type]
    rotation = Rotation.at(RotarySpec.from_dict(json.loads(json.dumps(spec.to_dict()))), AT)
    cos, sin = (torch.cat(parts, 1) for parts in zip(*map(form, (2 * n for n in SIZES), (base,) * 3, AT), strict=True))
    assert rotation.cos.dtype == cos.dtype == (torch.float64 if tables == "float64" else torch.float32)
    assert torch.equal(rotation.cos, cos) and torch.equal(rotation.sin, sin)
    usual = Rotation.at(spec.replace(angles="float32", tables="float32"), AT)
    assert not torch.equal(usual.cos, cos.float())  # so much is there to be told apart


@pytest.mark.parametrize("angles", WAYS)
def test_a_compiler_forms_the_same_tables(angles: str) -> None:
    spec = RotarySpec(head_dim=128, base=256.0, axes=Axial(SIZES), angles=angles, tables=WAYS[angles][1])  # type: ignore[arg-type]

    @torch.compile(backend="aot_eager", fullgraph=True)
    def tables(at: Tensor) -> tuple[Tensor, Tensor]:
        rotation = Rotation.at(spec, at)
        return rotation.cos, rotation.sin

    eager = Rotation.at(spec, AT)
    assert all(map(torch.equal, tables(AT), (eager.cos, eager.sin)))


def test_a_ladder_by_exp_is_not_scaled() -> None:
    with pytest.raises(ValueError, match=r"angles='float32_exp' has no scaling .*, got Linear.* angles='float32' has"):
        RotarySpec(head_dim=8, angles="float32_exp", scaling=Linear(2.0))
    scaled = RotarySpec(head_dim=8, angles="float64_rounded", scaling=Linear(2.0))
    assert scaled.inv_freq().tolist() == RotarySpec(head_dim=8, scaling=Linear(2.0)).inv_freq().tolist()
