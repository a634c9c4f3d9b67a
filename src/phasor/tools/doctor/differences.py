"""How far the tables of each rotary module are from those of its config, position by position."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...rotary.spec import RotarySpec
from ..patch.reading import ModelReading, forward_specs, layer_types, of_layer_type
from ..patch.rebuilt import probe_of
from .against_config.rotary_module import expected, tables_of_module
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
        return tuple(c for path, m in observed.modules.items() for c in _of_module(observed.reading, path, m))


def _of_module(reading: ModelReading, path: str, module: nn.Module) -> Iterator[Curve]:
    models, reason = reading.models_of(module)
    probe, _ = probe_of(module)
    if reason or probe is None:
        return
    forward = forward_specs(models)
    for layer_type in layer_types(module):
        curves = [_curve(path, probe, layer_type, spec) for spec in of_layer_type(layer_type, models, forward)]
        known = [curve for curve in curves if curve is not None]
        if known:
            yield min(known, key=lambda curve: max(curve.apart))


def _curve(path: str, probe: nn.Module, layer_type: str | None, spec: RotarySpec) -> Curve | None:
    if spec.coordinates == "real":
        return None
    longest = FARTHEST + 1
    if spec.length_dependent:  # farther on, a module may form other frequencies after each call
        assert spec.scaling is not None and spec.scaling.trained_length is not None
        longest = spec.scaling.trained_length
    positions = _positions(longest)
    at = torch.tensor(positions).expand(spec.axes.count, -1)
    theirs = tables_of_module(probe, layer_type, spec, at)
    if theirs is None or theirs.pairs != spec.pairs:
        return None
    cos, sin = expected(spec, at)
    apart = torch.maximum((theirs.cos - cos).abs(), (theirs.sin - sin).abs()).nan_to_num(torch.inf).amax(-1)
    name = path if layer_type is None else f"{path}: {layer_type}"
    return Curve(name, spec.describe(), positions, tuple(apart.tolist()))


def _positions(longest: int) -> tuple[int, ...]:
    steps = [int(2 ** (n / PER_OCTAVE)) for n in range(PER_OCTAVE * 17 + 1)]
    return tuple(sorted({p for p in (*steps, *SHOWN) if p < longest}))
