"""Mistakes with a number in them, which is read off first: positions, a base, the factor of a scaling, a gain.

The tensors of the other implementation show its angles, and these its frequencies and positions.
"""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ....rotary.axes import Mixed
from ....rotary.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, Proportional, Scaling, SteppedNTK, YaRN
from ..case import Change, Inputs, Mistake, RotationCase, Row, with_fields, with_spec
from ..comparison import TELLING, Comparison
from .positions import of_seen

USUAL = (10_000.0, 500_000.0, 1_000_000.0, 100.0, 1_000.0, 50_000.0, 100_000.0, 150_000.0, 160_000.0, 5_000_000.0, 1e7)
LARGEST = 35.0  # the logarithm of any base worth a thought
SAME = 0.05  # between the logarithms of one base as two pairs show it
FACTORS = (2.0, 4.0, 8.0, 16.0, 32.0, 40.0)  # where half precision does not let it be read off
LENGTHS = (4096, 8192, 2048, 32_768, 16_384)  # that models were trained at before they were stretched
NOISE = 1e-2  # radians by which an angle is off that half precision shows
SURE = 0.02  # radians that all pairs of a token may be off from one whole position


def fits(case: RotationCase, wrong: list[Comparison], inputs: Inputs) -> Iterator[Mistake]:
    """Mistakes whose number has to be found first; whoever asks must verify them."""
    yield from (Mistake(*row) for row in _rows(case, wrong, inputs))


def _rows(case: RotationCase, wrong: list[Comparison], inputs: Inputs) -> Iterator[Row]:
    by_name = {c.short.rpartition(".")[2]: c.got for c in wrong}
    angles = _read_angles(case, by_name, inputs)
    if angles is not None and case.spec.coordinates == "integer" and not isinstance(case.spec.axes, Mixed):
        yield from of_seen(case, _positions(case, angles))
    seen = by_name.get("inv_freq")
    if seen is None and angles is not None:
        seen = _frequencies(case, angles)
    bases = _bases(case, seen)
    round_ones = [base for base in bases if base == float(f"{base:.2g}")]  # NTK is another base, but no round one
    yield from _of_bases(case, round_ones)
    if seen is not None and case.spec.frequencies is None:
        yield from _scalings(case, seen)
    yield from _of_bases(case, [base for base in bases if base not in round_ones])
    if (gain := _gain(wrong)) is not None:
        yield "factor", f"all values are multiplied by {gain:.6g}", with_fields(gain=gain)


def _of_bases(case: RotationCase, bases: list[float]) -> Iterator[Row]:
    for base in bases:
        yield "base", f"the base is {base:.10g}, and must be {case.spec.base:.10g}", with_spec(base=base)


def _gain(wrong: list[Comparison]) -> float | None:
    """The ratio of what came to what was expected, if there is one worth the name."""
    big = [(c.expected.abs() > 0.1 * c.expected.abs().max()) & c.telling for c in wrong]
    ratios = torch.cat([(c.got / c.expected)[where].flatten() for c, where in zip(wrong, big, strict=True)])
    gain = float(ratios.median()) if len(ratios) else math.nan
    return gain if math.isfinite(gain) and gain != 0 else None


def _bases(case: RotationCase, seen: Tensor | None) -> list[float]:
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
    rounded = [base for log in shared for base in _rounded(math.exp(log))]
    return [base for base in dict.fromkeys((*USUAL, *rounded)) if base > 1 and base != spec.base]


def _rounded(number: float) -> list[float]:
    """What somebody may have meant who wrote it down: few digits first."""
    return [float(f"{number:.{digits}g}") for digits in (1, 2, 3, 5)] + [number]


def _scalings(case: RotationCase, seen: Tensor) -> Iterator[Row]:
    """Another factor of the same scaling, or a scaling where none must be."""
    plain, scaling = case.spec.replace(scaling=None).inv_freq(), case.spec.scaling
    turning = [p for p in range(case.spec.pairs) if plain[p] > 0 and seen[p] > 0]
    if not turning:
        return
    slowest = min(turning, key=lambda p: float(plain[p]))
    by = float(plain[slowest] / seen[slowest])
    given = getattr(scaling, "factor", None)
    for factor in dict.fromkeys((*(_rounded(by) if 1e-3 < by < 1e6 else ()), *FACTORS)):
        if scaling is None:
            yield from _added(factor)
        elif given not in (None, factor) and not isinstance(scaling, LongRoPE | DynamicNTK | SteppedNTK | Proportional):
            text = f"the factor of the {scaling.name} scaling is {factor:.6g}, and must be {given:.6g}"
            yield "scaling", text, _factor(scaling, factor)


def _factor(scaling: Any, factor: float) -> Change:
    """Built when it is tried: a factor that was read off may be one that the scaling cannot have."""
    return lambda case: with_spec(scaling=dataclasses.replace(scaling, factor=factor))(case)


def _added(factor: float) -> Iterator[Row]:
    if factor <= 1:
        return
    schemes: list[Scaling] = [Linear(factor)]
    if factor.is_integer():  # any other is better told as another base, which it is
        schemes.append(NTK(factor))
    for length in LENGTHS:
        schemes += [YaRN(factor, length), Llama3(factor, 1.0, 4.0, length)]
    for scheme in schemes:
        trained = f", trained length {scheme.trained_length:,}" if scheme.trained_length else ""
        text = f"there is a {scheme.name} scaling with factor {factor:.6g}{trained}, and there must be none"
        yield "scaling", text, with_spec(scaling=scheme)
        if isinstance(scheme, YaRN):
            text += " (its frequencies only, without its attention factor)"
            yield "scaling", text, with_spec(scaling=dataclasses.replace(scheme, attention=1.0))


def _frequencies(case: RotationCase, angles: Tensor) -> Tensor | None:
    """``[P]`` radians per position, read at the smallest position and refined at ever farther ones."""
    shares = torch.tensor(case.spec.axes.weights(case.spec.pairs), dtype=torch.float64)
    at = (case.positions.double().T @ shares) * case.spec.position_scale  # [S, P]
    frequencies = torch.zeros(at.shape[-1], dtype=torch.float64)
    error = torch.full_like(frequencies, math.inf)
    for token in at.abs().max(-1).values.argsort().tolist():
        here = at[token]
        usable = (here > 0) & (here * frequencies < TELLING) & ((error * here < 1) | error.isinf())
        guess = _nearest(angles[:, token], torch.where(error.isinf(), math.pi / 2, frequencies * here)) / here
        frequencies = torch.where(usable, guess, frequencies)
        error = torch.where(usable, NOISE / here, error)
    return None if error.isinf().all() else frequencies


def _positions(case: RotationCase, angles: Tensor) -> Tensor:
    """``[A, S]``: the whole position at which each token was rotated; nan where none fits."""
    speeds = case.spec.inv_freq(case.seq_len) * case.spec.position_scale
    owner = case.spec.axes.axis_of_pair(case.spec.pairs)
    turning = [p for p in speeds.argsort().tolist() if speeds[p] > 0]
    rows = [_of_axis(angles, speeds, [p for p in turning if owner[p] == a]) for a in range(case.spec.axes.count)]
    return torch.stack(rows)


def _of_axis(angles: Tensor, speeds: Tensor, turning: list[int]) -> Tensor:
    """``[S]``, as these pairs show it, the slowest first."""
    at = torch.zeros(angles.shape[1], dtype=torch.float64)
    if not turning:
        return at * math.nan
    for n, pair in enumerate(turning):
        guess = at * speeds[pair] if n else torch.full_like(at, 1e-9)
        at = _nearest(angles[:, :, pair], guess) / speeds[pair]
    guess = at.round()[:, None] * speeds[turning]
    off = (_nearest(angles[:, :, turning], guess) - guess).abs()
    return torch.where(off.amax(-1) < SURE, at.round(), math.nan)


def _nearest(angles: Tensor, guess: Tensor) -> Tensor:
    """Of the angles that would look alike, ``[ways, …]`` and whole turns apart, the one nearest to a guess."""
    apart = torch.remainder(angles - guess + math.pi, 2 * math.pi) - math.pi
    return guess + apart.gather(0, apart.abs().nan_to_num(99.0).argmin(0, keepdim=True)).squeeze(0)


def _read_angles(case: RotationCase, by_name: dict[str, Tensor], inputs: Inputs) -> Tensor | None:
    """``[ways, S, P]``: the angles that give what is seen, one where it tells cos and sin, else two."""
    sign = -1.0 if case.spec.reverse else 1.0
    cos, sin = (t if t is None or t.shape[-1] == case.spec.pairs else None for t in map(by_name.get, ("cos", "sin")))
    if cos is not None and sin is not None:
        return torch.atan2(sign * sin, cos).unsqueeze(0)
    if cos is not None:
        one = (cos / case.cos_factor).clamp(-1, 1).acos()
        return torch.stack((one, -one))
    if sin is not None:
        one = (sign * sin / case.sin_factor).clamp(-1, 1).asin()
        return torch.stack((one, math.pi - one))
    for name, y in by_name.items():
        if name.endswith("_out"):
            target, spec = name.removesuffix("_out"), case.spec
            layout, back = spec.layout, sign
            if target == "output" or target.endswith("_grad"):
                layout, back = layout.transposed(), -sign
            a, b = layout.split(inputs[target].double()[0, 0])
            c, d = layout.written().split(y[0, 0])
            return torch.atan2(back * (a * d - b * c), a * c + b * d).unsqueeze(0)
    return None
