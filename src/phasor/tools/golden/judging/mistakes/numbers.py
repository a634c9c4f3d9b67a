"""Mistakes with a number in them, which is read off first: positions, a base, the factor of a scaling, a gain."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from .....rotary.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, SteppedNTK, YaRN
from ..case import Case
from ..comparison import Comparison
from .inferred import frequencies, positions
from .mistake import Mistake, with_fields, with_spec
from .positions import of_seen

USUAL = (10_000.0, 500_000.0, 1_000_000.0, 100.0, 1_000.0, 50_000.0, 100_000.0, 150_000.0, 160_000.0, 5_000_000.0, 1e7)
LARGEST = 35.0  # the logarithm of any base worth a thought
SAME = 0.05  # between the logarithms of one base as two pairs show it
FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0)  # where half precision does not let it be read off
LENGTHS = (4096, 8192, 2048, 32_768, 16_384)  # that models were trained at before they were stretched


def fits(case: Case, wrong: list[Comparison], inputs: dict[str, Tensor]) -> Iterator[Mistake]:
    """Mistakes whose number has to be found first; whoever asks must verify them."""
    where = positions(case, wrong, inputs)
    if where is not None:
        yield from of_seen(case, where)
    seen = frequencies(case, wrong, inputs)
    bases = _bases(case, seen)
    round_ones = [base for base in bases if base == float(f"{base:.2g}")]  # NTK is another base, but no round one
    yield from _of_bases(case, round_ones)
    if seen is not None and case.spec.frequencies is None:
        yield from _scalings(case, seen)
    yield from _of_bases(case, [base for base in bases if base not in round_ones])
    gain = _gain(wrong)
    if gain is not None:
        yield Mistake("factor", f"all values are multiplied by {gain:.6g}", with_fields(gain=gain))


def _of_bases(case: Case, bases: list[float]) -> Iterator[Mistake]:
    for base in bases:
        yield Mistake("base", f"the base is {base:.10g}, and must be {case.spec.base:.10g}", with_spec(base=base))


def _gain(wrong: list[Comparison]) -> float | None:
    """The ratio of what came to what was expected, if there is one worth the name."""
    big = [(c.expected.abs() > 0.1 * c.expected.abs().max()) & c.telling for c in wrong]
    ratios = torch.cat([(c.got / c.expected)[where].flatten() for c, where in zip(wrong, big, strict=True)])
    gain = float(ratios.median()) if len(ratios) else math.nan
    return gain if math.isfinite(gain) and gain != 0 else None


def _bases(case: Case, seen: Tensor | None) -> list[float]:
    """Candidates for the base, round numbers first; none where a list of frequencies takes its place."""
    spec = case.spec
    if spec.frequencies is not None:
        return []
    expected = spec.inv_freq(case.seq_len)
    logs: list[float] = []
    rungs = spec.axes.rung_of_pair(spec.pairs)
    for pair in sorted({1, 2, 3, spec.pairs // 8, spec.pairs // 4, spec.pairs // 2, spec.pairs - 1}):
        if seen is None or pair >= spec.pairs or not (seen[pair] > 0 and expected[pair] > 0):
            continue
        i, n = rungs[pair]
        exponent = 2 * i / (spec.exponent_dim or 2 * n)
        log = math.log(spec.base) + (math.log(expected[pair]) - math.log(seen[pair])) / exponent if exponent else 0.0
        if 0 < log < LARGEST:
            logs.append(log)
    # one pair alone shows any base: two must show the same one
    shared = [log for log in logs if sum(abs(log - other) < SAME for other in logs) > 1]
    found = [base for log in shared for base in _rounded(math.exp(log))]
    return [base for base in dict.fromkeys((*USUAL, *found)) if base > 1 and base != spec.base]


def _rounded(number: float) -> list[float]:
    """What somebody may have meant who wrote it down: few digits first."""
    return [float(f"{number:.{digits}g}") for digits in (1, 2, 3, 5)] + [number]


def _scalings(case: Case, seen: Tensor) -> Iterator[Mistake]:
    """Another factor of the same scaling, or a scaling where none must be."""
    spec = case.spec
    plain = spec.replace(scaling=None).inv_freq()
    turning = [p for p in range(spec.pairs) if plain[p] > 0 and seen[p] > 0]
    if not turning:
        return
    slowest = min(turning, key=lambda p: float(plain[p]))
    by = float(plain[slowest] / seen[slowest])
    read = _rounded(by) if 1e-3 < by < 1e6 else []
    scaling = spec.scaling
    for factor in dict.fromkeys((*read, *FACTORS)):
        if scaling is None:
            yield from _added(factor)
        elif getattr(scaling, "factor", None) not in (None, factor) and not isinstance(
            scaling, LongRoPE | DynamicNTK | SteppedNTK | Proportional
        ):
            says = f"the factor of the {scaling.name} scaling is {factor:.6g}, and must be {scaling.factor:.6g}"  # type: ignore[attr-defined]
            yield Mistake("scaling", says, _factor(scaling, factor), alone=factor not in read)


def _factor(scaling: Any, factor: float) -> Callable[[Case], Case]:
    """Built when it is tried: a factor that was read off may be one that the scaling cannot have."""
    return lambda case: with_spec(scaling=dataclasses.replace(scaling, factor=factor))(case)


def _added(factor: float) -> Iterator[Mistake]:
    if factor <= 1:
        return
    schemes: list[Scaling] = [Linear(factor)]
    if factor.is_integer():  # any other is better told as another base, which it is
        schemes.append(NTK(factor))
    for length in LENGTHS:
        schemes += [YaRN(factor, length), Llama3(factor, 1.0, 4.0, length)]
    for scheme in schemes:
        trained = f", trained length {scheme.trained_length:,}" if scheme.trained_length else ""
        says = f"there is a {scheme.name} scaling with factor {factor:.6g}{trained}, and there must be none"
        yield Mistake("scaling", says, with_spec(scaling=scheme), alone=True)
        if isinstance(scheme, YaRN):
            says += " (its frequencies only, without its attention factor)"
            yield Mistake("scaling", says, with_spec(scaling=dataclasses.replace(scheme, attention=1.0)), alone=True)
