"""The rotation of a pair written down wrongly: values overwritten, a minus lost, cos for sin, degrees for radians."""

import math
from collections.abc import Iterator

from ..case import Mistake, RotationCase, with_fields

_FORMULAS = (
    ("in_place", "first overwritten", "the first of each pair is overwritten before the second is formed from it"),
    ("in_place", "second overwritten", "the second of each pair is overwritten before the first is formed from it"),
    ("lost_minus", "no minus", "the minus is lost: first * cos + second * sin, where the sine must be subtracted"),
    ("lost_minus", "two minuses", "a minus too many: second * cos - first * sin, where the sine must be added"),
)  # fmt: skip


def of_pairs(case: RotationCase) -> Iterator[Mistake]:
    if not case.spec.second:
        for cause, formula, text in _FORMULAS:
            yield Mistake(cause, text, with_fields(formula=formula))
    yield Mistake("cos_sin", "cos and sin are exchanged", with_fields(exchanged=True))
    text = "degrees are taken for radians: angles are multiplied by {}"
    yield Mistake("degrees", text.format("pi / 180"), with_fields(unit=math.pi / 180))
    yield Mistake("degrees", text.format("180 / pi"), with_fields(unit=180 / math.pi))
    ladder = case.spec.inv_freq(case.seq_len)
    text = "the ladder of frequencies is reversed: the first pair is the slowest, and must be the fastest"
    yield Mistake("ladder_reversed", text, with_fields(frequencies=ladder.flip(0)))
