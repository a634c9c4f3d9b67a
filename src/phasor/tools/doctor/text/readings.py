"""Other things that the encoding of a model may plausibly be: each differs from a given one in one respect."""

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from ....models.configs import ModelRotary
from ....rotary.scaling import Linear, Llama3, Scaling, YaRN
from ....rotary.spec import RotarySpec

BASES = (10_000.0, 500_000.0, 1_000_000.0, 5_000_000.0)  # those of most models
STEP = 4.0  # bases closer than that are one reading
FACTORS = (2.0, 4.0, 8.0)
OTHER = {"halves": "interleaved", "interleaved": "halves"}


class WeightReading(NamedTuple):
    """What a model rotates, and how the pairs lie in its weights (a word of `phasor.checkpoints`)."""

    rotary: ModelRotary
    layout: str


def around(reading: WeightReading) -> Iterator[WeightReading]:
    """Readings that differ in the layout, or for the layers of one spec in base, scaling or width."""
    if reading.layout in OTHER:
        yield WeightReading(reading.rotary, OTHER[reading.layout])
    for spec in reading.rotary.distinct:
        for other in _others(spec, reading.rotary.max_position or 0):
            yield _with(reading, {spec: other})
    if len(specs := list(reading.rotary.distinct)) == 2 and specs[0].base != specs[1].base:
        first, second = specs
        yield _with(reading, {first: first.replace(base=second.base), second: second.replace(base=first.base)})


def _with(reading: WeightReading, changed: dict[RotarySpec, RotarySpec]) -> WeightReading:
    layers = tuple(None if spec is None else changed.get(spec, spec) for spec in reading.rotary.layers)
    return WeightReading(replace(reading.rotary, layers=layers), reading.layout)


def _others(spec: RotarySpec, longest: int) -> Iterator[RotarySpec]:
    changes: list[dict] = [{"base": base} for base in bases(spec.base)]
    changes += [{"scaling": scaling} for scaling in scalings(spec.scaling, longest)]
    changes += [{"rotary_dim": spec.head_dim // part} for part in (1, 2, 4) if not spec.trailing]
    for change in changes:
        try:
            other = spec.replace(**change)
        except ValueError:  # explicit frequencies have no base, odd widths no pairs
            continue
        if other != spec:
            yield other


def bases(stated: float) -> list[float]:
    """Bases at least 4 times away: those of most models, and steps of 4 where none of these is near.

    >>> bases(10_000.0)
    [625.0, 2500.0, 40000.0, 160000.0, 500000.0, 1000000.0, 2560000.0, 5000000.0]
    """
    others = [base for base in BASES if not 1 / STEP < base / stated < STEP]
    steps = (stated * STEP**k for k in (-2, -1, 1, 2, 3, 4))
    others += [base for base in steps if base > 10 and all(max(base / b, b / base) > 1.5 for b in others)]
    return sorted(others)


def scalings(stated: Scaling | None, longest: int) -> list[Scaling | None]:
    """Other schemes with the same factor, other factors of the same scheme (twice or half, and more), and none at all.

    >>> scalings(None, 16)
    [Linear(factor=2.0), Linear(factor=4.0), Linear(factor=8.0)]
    >>> scalings(Linear(4.0), 32)[:3]
    [None, Linear(factor=2.0), Linear(factor=8.0)]
    """
    if stated is None:
        return [s for f in FACTORS for s in _schemes(f, int(longest // f))]
    factor = getattr(stated, "factor", None)
    others: list[Scaling | None] = [None]
    if not isinstance(factor, float | int):
        return others
    others += [_changed(stated, factor=factor * by) for by in (0.25, 0.5, 2.0, 4.0) if factor * by > 1]
    others += [
        s for s in _schemes(factor, stated.trained_length or int(longest // factor)) if type(s) is not type(stated)
    ]
    if stated.attention_factor() != 1 and hasattr(stated, "attention"):
        others.append(_changed(stated, attention=1.0))
    return others


def _schemes(factor: float, trained: int) -> list[Scaling]:
    if trained < 16:
        return [Linear(factor)]
    llama3 = [Llama3(factor, 1.0, 4.0, trained)] if factor == 8 or trained >= 8192 else []
    return [Linear(factor), YaRN(factor, trained), *llama3]


def _changed(scaling: Scaling, **fields: float) -> Scaling:
    return dataclasses.replace(scaling, **fields)  # type: ignore[type-var]


def in_words(reading: WeightReading, stated: WeightReading) -> str:
    """How a reading differs from the stated one.

    >>> spec = RotarySpec(head_dim=8)
    >>> rotary = ModelRotary(model_type="toy", layers=(spec,), layer_types=("attention",), num_heads=1)
    >>> other = replace(rotary, layers=(spec.replace(base=500.0, scaling=Linear(2.0)),))
    >>> in_words(WeightReading(rotary, "halves"), WeightReading(rotary, "halves"))
    'as stated'
    >>> in_words(WeightReading(other, "interleaved"), WeightReading(rotary, "halves"))
    'pairs interleaved in the weights, base 500, linear factor 2'
    """
    words = [f"pairs {_laid(reading.layout)} in the weights"] if reading.layout != stated.layout else []
    several = len(stated.rotary.distinct) > 1
    told = zip(stated.rotary.layers, reading.rotary.layers, stated.rotary.layer_types, strict=True)
    for old, new, kind in dict.fromkeys(told):
        if old is None or new is None or old == new:
            continue
        where = f" in {kind} layers" if several else ""
        words += [f"{_field(name, new)}{where}" for name in old.diff(new)]
    return ", ".join(dict.fromkeys(words)) or "as stated"


def _laid(layout: str) -> str:
    return "in halves" if layout == "halves" else layout


def _field(name: str, spec: RotarySpec) -> str:
    if name == "base":
        return f"base {spec.base:.12g}"
    if name == "scaling":
        return _scheme(spec.scaling) if spec.scaling is not None else "no scaling"
    return f"{spec.rotary_dim} of {spec.head_dim} channels"


def _scheme(scaling: Scaling) -> str:
    factor, trained, attention = (getattr(scaling, n, None) for n in ("factor", "original_max_position", "attention"))
    words = [scaling.name] + ([f"factor {factor:.6g}"] if isinstance(factor, float | int) else [])
    words += [f"from {trained}"] if trained else []
    return " ".join([*words, *([f"attention factor {attention:g}"] if attention else [])])
