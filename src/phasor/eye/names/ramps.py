"""Candidates that keep the fastest pairs and divide the slowest: Llama 3, YaRN as shipped and YaRN as on paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

from ...rotary.scaling import Llama3, Scaling, YaRN, YaRNPaper
from .config_numbers import Numbers
from .sight import TOLERANCE, Sight
from .solved import SOLVED, bases_of, built, fall, is_one, is_positive, rounded, snapped, with_scaling


def ramped(maker: Callable[..., Iterator[Scaling]]) -> Callable[..., Iterator[dict[str, Any]]]:
    """Candidates of a scaling that keeps the fastest pairs and divides the slowest: their base shows at the front."""

    def candidates(sight: Sight, config: Numbers, ladder: list[float], literal: bool) -> Iterator[dict[str, Any]]:
        if len(ladder) < 2 or not is_one(ladder[0]) or not all(f > 0 for f in ladder):
            return
        bases = bases_of(sight, config, fall(sight, ladder, 1), 2 * SOLVED)
        bases += [(base, None) for base in config.bases if (base, None) not in bases]
        for base, dim in bases:
            ramp = Ramp(sight, config, base, 2 * sight.rungs if dim is None else dim)
            if ramp.falls:
                for scaling in _screened(maker(ramp, literal), ramp):
                    yield from with_scaling([(base, dim)], scaling)

    return candidates


def _screened(scalings: Iterator[Scaling], ramp: Ramp) -> Iterator[Scaling]:
    """Those that give the ladder nearly: far cheaper to see here than in a spec."""
    import torch

    seen = torch.tensor(ramp.ladder, dtype=torch.float64, device="cpu")
    tried: set[Scaling] = set()
    for scaling in scalings:
        if scaling in tried:
            continue
        tried.add(scaling)
        try:
            values = scaling.inv_freq_float32(ramp.base, ramp.dim)[ramp.sight.steps].double()
        except (ValueError, OverflowError, ZeroDivisionError):
            continue
        if ((values - seen).abs() <= TOLERANCE * seen.abs()).all():
            yield scaling


@dataclass(frozen=True)
class Ramp:
    """A ladder of which the fastest pairs are kept and the slowest divided by `factor`, over a known base."""

    sight: Sight
    config: Numbers
    base: float
    dim: int
    ladder: list[float] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "ladder", self.sight.ladder())

    @cached_property
    def plain(self) -> list[float]:
        return [self.base ** (-2 * i / self.dim) for i in self.sight.steps]

    @cached_property
    def divisors(self) -> list[float]:
        return [p / f for p, f in zip(self.plain, self.ladder, strict=True)]

    @property
    def falls(self) -> bool:
        """Whether anything is divided, and nothing less than what is faster; or nothing but the factor shows."""
        if all(map(is_one, self.divisors)):
            return not is_one(self.sight.factor)
        rises = [b >= a * (1 - 4 * TOLERANCE) for a, b in pairwise(self.divisors)]
        return not is_one(self.divisors[-1]) and (self.divisors[-1] > 1) == all(rises)

    @cached_property
    def factors(self) -> list[float]:
        """What the slowest pairs are divided by; where the blend has no end inside the ladder, any larger number."""
        *_, before, last = self.divisors
        ended = is_one(last / before)
        more = () if ended else (number for number in self.config.others if number > last)
        return list(dict.fromkeys((*snapped(last, self.config), *more)))

    def kept(self, factor: float) -> list[tuple[int, float, float]]:
        """Of the pairs between: rung, plain frequency, and the share of it that is kept."""
        if is_one(factor):
            return []
        kept = (f / p for p, f in zip(self.plain, self.ladder, strict=True))
        shares = ((share - 1 / factor) / (1 - 1 / factor) for share in kept)
        between = zip(self.sight.steps, self.plain, shares, strict=True)
        return [(i, p, share) for i, p, share in between if 1e-4 < share < 1 - 1e-4]

    def originals(self) -> list[int]:
        """Lengths that the model may have been trained with: those that are called so, then all whole numbers."""
        return list(dict.fromkeys((*self.config.lengths, *self.config.whole)))


def llama3(ramp: Ramp, literal: bool) -> Iterator[Scaling]:
    if literal or not ramp.sight.is_factor(1.0, ramp.sight.factor):
        return
    for p in ramp.config.parameters("factor", "low", "high", "original", "length"):
        original = p.get("original", p.get("length"))
        if all(is_positive(p.get(name)) for name in ("factor", "low", "high")) and is_positive(original):
            yield from built(Llama3, p["factor"], p["low"], p["high"], int(original))
    for factor, original, low, high in _blends(ramp):
        yield from built(Llama3, factor, low, high, original)


def yarn_paper(ramp: Ramp, literal: bool) -> Iterator[Scaling]:
    for factor, original, low, high in () if literal else _blends(ramp):
        for scaling in built(YaRNPaper, factor, original, low, high):
            if ramp.sight.is_factor(scaling.attention_factor(), ramp.sight.factor):
                yield scaling


def _blends(ramp: Ramp) -> Iterator[tuple[float, int, float, float]]:
    """Factor, trained length and bounds of a blend that is linear in the number of turns, solved from two pairs."""
    for factor in ramp.factors:
        line = _line([(plain, share) for _, plain, share in ramp.kept(factor)])
        if line is None or line[0] <= 0:
            continue
        slope, start = line
        for original in ramp.originals():
            width = original / (2 * math.pi * slope)
            low, high = -start * width, (1 - start) * width
            for snapped_low in rounded(low, ramp.config):
                for snapped_high in rounded(high, ramp.config):
                    yield factor, original, snapped_low, snapped_high


def yarn(ramp: Ramp, literal: bool) -> Iterator[Scaling]:
    for p in ramp.config.parameters("factor", "original", "length", "beta_fast", "beta_slow", "truncate", *_MAGNITUDES):
        original, length = p.get("original"), p.get("length")
        factors = [p.get("factor"), length / original if is_positive(length) and is_positive(original) else None]
        betas = (p.get("beta_fast", 32.0), p.get("beta_slow", 1.0))
        for factor in filter(is_positive, (*factors, *ramp.factors)):
            for start in filter(is_positive, (original, length)):
                for truncate in (True, False) if p.get("truncate", True) else (False, True):
                    for scaling in built(YaRN, factor, int(start), *betas, truncate):
                        yield from _with_magnitude(scaling, p, ramp.sight, literal)
    for scaling in _bounded(ramp):
        yield from _with_magnitude(scaling, {}, ramp.sight, literal)


def _bounded(ramp: Ramp) -> Iterator[YaRN]:
    """YaRN whose ramp over the pair index is solved from two pairs: the numbers of turns at its ends come after."""
    log_base = 2 * math.log(ramp.base) / ramp.dim
    for factor in ramp.factors:
        line = _line([(i, share) for i, _, share in ramp.kept(factor)])
        if line is None or line[0] >= 0:
            continue
        slope, start = line
        low, high = (1 - start) / slope, -start / slope
        whole = all(abs(x - round(x)) < 1e-3 for x in (low, high))
        for original in ramp.originals():
            turns = [original / (2 * math.pi) * math.exp(-log_base * bound) for bound in (low, high)]
            slowest = 0.0 if round(high) == ramp.dim - 1 else turns[1]  # where it is cut off
            if whole:
                # Every number of turns inside one pair's width has the same whole bound.
                for fast in _inside(ramp.config, 32.0, turns[0], turns[0] * math.exp(-log_base)):
                    for slow in _inside(ramp.config, 1.0, turns[1] * math.exp(log_base), slowest):
                        yield from built(YaRN, factor, original, fast, slow, True)
            for fast in rounded(turns[0], ramp.config):
                for slow in rounded(turns[1], ramp.config):
                    yield from built(YaRN, factor, original, fast, slow, False)


def _line(points: list[tuple[float, float]]) -> tuple[float, float] | None:
    """Slope and start of the line through the first and the last point, if one in the middle lies on it."""
    if len(points) < 2:
        return None
    (x, a), (y, b) = points[0], points[-1]
    slope = (a - b) / (x - y)
    start = a - slope * x
    between, share = points[len(points) // 2]
    return (slope, start) if abs(start + slope * between - share) < 1e-4 else None


def _inside(config: Numbers, usual: float, high: float, low: float) -> list[float]:
    """The usual number if it lies between the two, else the config's first that does."""
    fits = [x for x in (usual, *config.others) if low < x < high * (1 + SOLVED)]
    return fits[:1]


_MAGNITUDES = ("attention", "mscale", "mscale_all_dim")


def _with_magnitude(scaling: YaRN, stated: Mapping[str, Any], sight: Sight, literal: bool) -> Iterator[YaRN]:
    """The scaling with the factor on cos and sin that was seen, by as much of what the config says as gives it."""
    said = {name: stated[name] for name in _MAGNITUDES if name in stated}
    choices = [said, {"attention": said.get("attention")}, {k: said[k] for k in said if k != "attention"}, {}]
    if literal:
        choices = [{"attention": sight.factor}]
    for choice in choices:
        for variant in built(replace, scaling, **choice):
            if sight.is_factor(variant.attention_factor(), sight.factor):
                yield variant
                return
