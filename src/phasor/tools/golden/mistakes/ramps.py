"""Llama 3's blend and YaRN's ramp with other bounds than the config's: swapped, reversed, or other numbers."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ....rotary.scaling import Llama3, YaRN
from ..case import Mistake, RotationCase, with_fields

_NEAR = (0.5, 2.0, 4.0, 0.25, 8.0)  # times what a bound, or a length, must be
_LENGTHS = tuple(2**n for n in range(10, 21))


def of_ramps(case: RotationCase) -> Iterator[Mistake]:
    """The frequencies as the formula gives them for parameters that the scaling itself would refuse."""
    scaling = case.spec.scaling
    if not isinstance(scaling, Llama3 | YaRN):
        return
    blend = _llama3 if isinstance(scaling, Llama3) else _yarn
    low, high = ("low_freq_factor", "high_freq_factor") if isinstance(scaling, Llama3) else ("beta_slow", "beta_fast")
    parameters = dataclasses.asdict(scaling)
    swapped = {**parameters, low: parameters[high], high: parameters[low]}
    yield _mistake(f"{low} and {high} are exchanged", blend(case, swapped))
    yield _mistake(f"the {scaling.name} blend is reversed: slow pairs are kept and fast ones divided, or so between "
                   "the bounds", blend(case, parameters, reverse=True))  # fmt: skip
    length = parameters["original_max_position"]
    lengths = (*_LENGTHS, length * scaling.factor, length / scaling.factor, *(length * n for n in _NEAR))
    others = {low: [parameters[low] * n for n in _NEAR], high: [parameters[high] * n for n in _NEAR]}
    for name, values in {**others, "original_max_position": lengths}.items():
        for value in dict.fromkeys(values):
            if value > 0 and value != parameters[name]:
                text = f"{name} of the {scaling.name} scaling is {value:,.6g}, and must be {parameters[name]:,.6g}"
                yield _mistake(text, blend(case, {**parameters, name: value}))


def _mistake(text: str, frequencies: Tensor) -> Mistake:
    return Mistake("scaling", text, with_fields(frequencies=frequencies))


def _ladder(case: RotationCase) -> Tensor:
    return case.spec.replace(scaling=None).inv_freq()


def _llama3(case: RotationCase, parameters: dict[str, Any], reverse: bool = False) -> Tensor:
    f, low, high = _ladder(case), parameters["low_freq_factor"], parameters["high_freq_factor"]
    turns = parameters["original_max_position"] * f / (2 * math.pi)
    keep = (turns - low) / (high - low) if high != low else (turns > high).double()
    blended = f * ((1 - keep if reverse else keep) * (1 - 1 / parameters["factor"]) + 1 / parameters["factor"])
    return torch.where(turns > high, f, torch.where(turns < low, f / parameters["factor"], blended))


def _yarn(case: RotationCase, parameters: dict[str, Any], reverse: bool = False) -> Tensor:
    f, base = _ladder(case), case.spec.base
    rungs = torch.tensor([rung for rung, _ in case.spec.axes.rung_of_pair(case.spec.pairs)], dtype=torch.float64)
    width = case.spec.exponent_dim or 2 * case.spec.axes.rung_of_pair(case.spec.pairs)[0][1]

    def bound(turns: float) -> float:
        return width * math.log(parameters["original_max_position"] / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = bound(parameters["beta_fast"]), bound(parameters["beta_slow"])
    if parameters["truncate"]:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = ((rungs - low) / (high - low or 0.001)).clamp(0, 1)
    ramp = 1 - ramp if reverse else ramp
    return f * (1 - ramp) + f / parameters["factor"] * ramp
