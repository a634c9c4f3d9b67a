"""How a model's own code forms angles is seen by the bits of its tables, whatever the model is called."""

import math
from collections.abc import Callable
from functools import partial
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


def by_exp(at: Tensor, divisor: float = 1.0, after: float = 1.0) -> tuple[Tensor, Tensor]:
    frequencies = torch.exp(-math.log(10_000.0) * torch.arange(PAIRS, dtype=torch.float32) / PAIRS)
    angles = torch.outer(at.float() / divisor, frequencies) / after
    return angles.cos(), angles.sin()


class Rowan(nn.Module):
    """A clip of nobody's library: each axis turns a third of a head, by the rows of a table of its own.

    They are looked up or came so; what has turned is halved or not, and then widened.
    """

    def __init__(self, *tables: Table, halved: bool = False, looks_up: bool = False) -> None:
        super().__init__()
        self.qkv, self.halved = nn.Linear(6 * PAIRS, 18 * PAIRS), halved
        rows = [torch.arange(n) for n in SIZE]
        self.at = torch.cartesian_prod(*rows).T
        self.tables = [table(at) for table, at in zip(tables if len(tables) > 1 else tables * 3, rows, strict=True)]
        self.held = None if looks_up else self.rows()

    def rows(self) -> tuple[Tensor, ...]:
        parts = [[part[at] for part in pair] for pair, at in zip(self.tables, self.at, strict=True)]
        return tuple(torch.cat(each, 1) for each in zip(*parts, strict=True))

    def turned(self, x: Tensor) -> Tensor:
        (cos, sin), a, b = self.held or self.rows(), x[..., 0::2], x[..., 1::2]
        turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        return turned.to(x.dtype).to(cos.dtype) if self.halved else turned

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


@pytest.mark.parametrize("looks_up", [True, False])
@pytest.mark.parametrize("divisors, after", [((1.9, 1.1, 0.7), False), ((1.0, 2.0, 2.0), True)])
def test_a_stretched_grid_is_counted_by_its_first_pairs(
    divisors: tuple[float, ...], after: bool, looks_up: bool
) -> None:
    """Allegro divides positions, Kandinsky 6 angles; the recipe is seen only where coordinates are right to the bit.

    Where tokens stand is on the tape if rows are looked up; else measured, and halves alone are measured to the bit.
    """
    tables = [partial(by_exp, **{"after" if after else "divisor": d}) for d in divisors]
    spec = observed(model := Rowan(*tables, looks_up=looks_up))
    seen = "float32_exp" if looks_up or after else "float32"
    assert (spec.angles, spec.base, spec.coordinates) == (seen, 10_000.0, "real")
    rotation = Rotation.at(spec.replace(angles="float32_exp"), pictures(SIZE) / torch.tensor(divisors)[:, None])
    assert all(map(torch.equal, (rotation.cos, rotation.sin), model.rows()))


@pytest.mark.parametrize("halved, tables", [(False, "promoted"), (True, "float32")])
def test_what_is_halved_and_widened_again_is_not_promoted(halved: bool, tables: str) -> None:
    """Sana-Video's code writes what has turned into bfloat16 before it widens it."""
    spec: Any = observed(Rowan(by_exp, halved=halved))
    assert spec.tables == tables
