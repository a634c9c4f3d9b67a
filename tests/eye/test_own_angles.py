"""How a model's own code forms angles is seen by the bits of its tables, whatever the model is called."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention as sdpa

import phasor
from phasor import RotarySpec, Rotation
from phasor.positions import pictures

SIZE, PAIRS = (3, 5, 7), 8
Table = Callable[[Tensor], tuple[Tensor, Tensor]]  # where tokens stand on an axis -> cos and sin


def by_powers(dtype: torch.dtype) -> Tensor:
    return 1.0 / 10_000.0 ** (torch.arange(0, 2 * PAIRS, 2, dtype=dtype) / (2 * PAIRS))


def in_float64(at: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.outer(at, by_powers(torch.float64))
    return angles.cos(), angles.sin()


def rounded_by_polar(at: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.outer(at.double() + 7, by_powers(torch.float64)).float()  # behind seven words
    table = torch.polar(torch.ones_like(angles), angles)
    return table.real, table.imag


def by_exp(at: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.outer(at.float(), torch.exp(-math.log(10_000.0) * torch.arange(PAIRS, dtype=torch.float32) / PAIRS))
    return angles.cos(), angles.sin()


def by_exp_stretched(at: Tensor) -> tuple[Tensor, Tensor]:
    angles = torch.outer(at.float(), torch.exp(-math.log(10_000.0) * torch.arange(PAIRS, dtype=torch.float32) / PAIRS))
    return (angles / 2.0).cos(), (angles / 2.0).sin()


class Rowan(nn.Module):
    """A clip of nobody's library: each axis turns a third of a head, by a table of its own; what has turned is halved
    or not, and then widened."""

    def __init__(self, table: Table, halved: bool = False) -> None:
        super().__init__()
        self.qkv, self.halved, rows = nn.Linear(6 * PAIRS, 18 * PAIRS), halved, [torch.arange(n) for n in SIZE]
        parts = [[part[i] for part, i in zip(pair, torch.cartesian_prod(*rows).T)] for pair in zip(*map(table, rows))]  # noqa: B905
        self.register_buffer("cos", torch.cat(parts[0], 1), persistent=False)
        self.register_buffer("sin", torch.cat(parts[1], 1), persistent=False)

    def turned(self, x: Tensor) -> Tensor:
        a, b = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((a * self.cos - b * self.sin, a * self.sin + b * self.cos), -1).flatten(-2)
        return turned.to(x.dtype).to(self.cos.dtype) if self.halved else turned

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = self.qkv(tokens).chunk(3, -1)
        q, k = self.turned(q), self.turned(k)
        return sdpa(q, k, v.to(q.dtype))


def observed(model: nn.Module) -> RotarySpec:
    seen = phasor.observe(model, torch.randn(1, math.prod(SIZE), 6 * PAIRS))
    assert seen.rotary is not None, seen
    (spec,) = seen.rotary.with_angles("float32").distinct
    return spec


@pytest.mark.parametrize(
    "table, angles", [(in_float64, "float64"), (rounded_by_polar, "float64_rounded"), (by_exp, "float32_exp")]
)
def test_the_recipe_of_tables_is_seen(table: Table, angles: str) -> None:
    spec = observed(Rowan(table))
    assert (spec.angles, spec.base, spec.coordinates) == (angles, 10_000.0, "integer")


@pytest.mark.parametrize("divided", [2.0, 2.2])
def test_a_stretched_grid_is_named_by_its_first_pairs(divided: float) -> None:
    """Positions that are divided before they are multiplied; the frequencies are no list."""

    def stretched(at: Tensor) -> tuple[Tensor, Tensor]:
        angles = torch.outer(at.float() / divided, by_powers(torch.float32))
        return angles.cos(), angles.sin()

    spec = observed(model := Rowan(stretched))
    assert (spec.angles, spec.base, spec.coordinates) == ("float32", 10_000.0, "real")
    rotation = Rotation.at(spec, pictures(SIZE).float() / divided)
    assert torch.equal(rotation.cos, model.cos) and torch.equal(rotation.sin, model.sin)  # type: ignore[arg-type]


def test_angles_of_a_ladder_by_exp_may_be_stretched_by_two() -> None:
    """Kandinsky 6: coordinates measured between two rows are halves to the bit, or the recipe would not be seen."""
    spec = observed(model := Rowan(by_exp_stretched))
    assert (spec.angles, spec.base, spec.coordinates) == ("float32_exp", 10_000.0, "real")
    assert torch.equal(Rotation.at(spec, pictures(SIZE) / 2).cos, model.cos)  # type: ignore[arg-type]


@pytest.mark.parametrize("halved, tables", [(False, "promoted"), (True, "float32")])
def test_what_is_halved_and_widened_again_is_not_promoted(halved: bool, tables: str) -> None:
    """Sana-Video's code writes what has turned into bfloat16 before it widens it."""
    spec: Any = observed(Rowan(by_exp, halved))
    assert spec.tables == tables
