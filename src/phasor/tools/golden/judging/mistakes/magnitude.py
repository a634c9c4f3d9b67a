"""Factors on cos, sin and the results."""

from collections.abc import Iterator

import torch

from ..case import Case
from .mistake import Mistake, with_fields


def of_magnitude(case: Case, softmax_factor: float, temperature: torch.Tensor | None) -> Iterator[Mistake]:
    factor = case.cos_factor
    if factor != 1:
        what = f"the attention factor {factor:.9g}"
        both = {"missing from": 1.0, "squared in": factor**2}
        for word, value in both.items():
            change = with_fields(cos_factor=value, sin_factor=value)
            yield Mistake("attention_factor", f"{what} is {word} cos and sin", change)
        yield Mistake("attention_factor", f"{what} is in cos only, not in sin", with_fields(sin_factor=1.0))
        yield Mistake("attention_factor", f"{what} is in sin only, not in cos", with_fields(cos_factor=1.0))
        yield Mistake("attention_factor", f"{what} was divided by", with_fields(gain=factor**-2))
    for power, word in ((1.0, ""), (0.5, "the square root of ")):
        if softmax_factor != 1:
            says = f"{word}the softmax factor {softmax_factor:.9g} is inside; it belongs to the scores"
            yield Mistake("softmax_factor", says, with_fields(gain=softmax_factor**power))
    if temperature is not None and temperature.ndim == 1:
        says = "the temperature is inside; it is kept apart here"
        yield Mistake("temperature", says, with_fields(gain=temperature.double().unsqueeze(-1)))
