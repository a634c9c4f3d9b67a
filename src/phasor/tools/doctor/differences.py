"""How far the tables of each rotary module are from those of its config, position by position."""

from dataclasses import dataclass
from typing import Any

import torch

from ...rotary.spec import RotarySpec
from .against_config.rotary_module import Module, by_layer_type, expected, tables_of_module
from .observation import Observation

FARTHEST = 131_071
PER_OCTAVE = 8
SHOWN = (0, 1, 10, 100, 1000, 10_000, 100_000)


@dataclass(frozen=True)
class Curve:
    """``apart[i]``: the largest difference of cos or sin, of any pair, at ``positions[i]``; infinite for no number."""

    module: str
    spec: str
    positions: tuple[int, ...]
    apart: tuple[float, ...]

    def at(self, position: int) -> float:
        return self.apart[self.positions.index(position)]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        apart = [str(x) if x == float("inf") else x for x in self.apart]
        return {"module": self.module, "spec": self.spec, "positions": list(self.positions), "apart": apart}


def curves(observed: Observation) -> tuple[Curve, ...]:
    """A curve for each module that forms cos and sin of positions, and each layer type it forms them for.

    Each is the one of the specs of its part that fits best. Modules whose positions are real coordinates, or that
    number their tokens themselves, have none.
    """
    with torch.no_grad(), torch.device("cpu"):
        modules = [by_layer_type(observed.reading, path, module) for path, module in observed.modules.items()]
        return tuple(c for those in modules if not isinstance(those, str) for one in those for c in _best(one))


def _best(one: Module) -> list[Curve]:
    curves = [curve for spec in one.specs if (curve := _curve(one, spec)) is not None]
    return sorted(curves, key=lambda curve: max(curve.apart))[:1]


def _curve(one: Module, spec: RotarySpec) -> Curve | None:
    if spec.coordinates == "real":
        return None
    longest = FARTHEST + 1
    if spec.length_dependent:  # farther on, a module may form other frequencies after each call
        assert spec.scaling is not None and spec.scaling.trained_length is not None
        longest = spec.scaling.trained_length
    positions = _positions(longest)
    at = torch.tensor(positions).expand(spec.axes.count, -1)
    theirs = tables_of_module(one.probe, one.layer_type, spec, at)
    if theirs is None or theirs.pairs != spec.pairs:
        return None
    cos, sin = expected(spec, at)
    apart = torch.maximum((theirs.cos - cos).abs(), (theirs.sin - sin).abs()).nan_to_num(torch.inf).amax(-1)
    name = one.path if one.layer_type is None else f"{one.path}: {one.layer_type}"
    return Curve(name, spec.describe(), positions, tuple(apart.tolist()))


def _positions(longest: int) -> tuple[int, ...]:
    steps = [int(2 ** (n / PER_OCTAVE)) for n in range(PER_OCTAVE * 17 + 1)]
    return tuple(sorted({p for p in (*steps, *SHOWN) if p < longest}))
