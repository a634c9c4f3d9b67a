"""Numbers read off the other implementation's tensors: a base, a factor."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from .compare import Comparison
from .imitate import Case
from .mistake import Mistake, with_fields, with_spec

USUAL = (10_000.0, 500_000.0, 1_000_000.0, 100.0, 1_000.0, 50_000.0, 100_000.0, 150_000.0, 160_000.0, 5_000_000.0, 1e7)
LARGEST = 35.0  # the logarithm of any base worth a thought


def fits(case: Case, wrong: list[Comparison], inputs: dict[str, Tensor]) -> Iterator[Mistake]:
    """Mistakes whose number has to be found first; whoever asks must verify them."""
    for base in _bases(case, wrong, inputs):
        says = f"the base is {base:.10g}, and must be {case.spec.base:.10g}"
        yield Mistake("base", says, with_spec(base=base))
    gain = _gain(wrong)
    if gain is not None:
        yield Mistake("factor", f"all values are multiplied by {gain:.6g}", with_fields(gain=gain))


def _gain(wrong: list[Comparison]) -> float | None:
    """The ratio of what came to what was expected, if there is one worth the name."""
    big = [(c.expected.abs() > 0.1 * c.expected.abs().max()) & c.telling for c in wrong]
    ratios = torch.cat([(c.got / c.expected)[where].flatten() for c, where in zip(wrong, big, strict=True)])
    gain = float(ratios.median()) if len(ratios) else math.nan
    return gain if math.isfinite(gain) and gain != 0 else None


def _bases(case: Case, wrong: list[Comparison], inputs: dict[str, Tensor]) -> list[float]:
    """Candidates for the base, round numbers first; none where a list of frequencies takes its place."""
    spec = case.spec
    if spec.frequencies is not None:
        return []
    expected, seen = spec.inv_freq(case.seq_len), _frequencies(case, wrong, inputs)
    found: list[float] = []
    rungs = spec.axes.rung_of_pair(spec.pairs)
    for pair in sorted({1, 2, 3, spec.pairs // 8, spec.pairs // 4, spec.pairs // 2, spec.pairs - 1}):
        if seen is None or pair >= spec.pairs or not (seen[pair] > 0 and expected[pair] > 0):
            continue
        i, n = rungs[pair]
        exponent = 2 * i / (spec.exponent_dim or 2 * n)
        log = math.log(spec.base) + (math.log(expected[pair]) - math.log(seen[pair])) / exponent if exponent else 0.0
        if 0 < log < LARGEST:
            base = math.exp(log)
            found += [float(f"{base:.{digits}g}") for digits in (1, 2, 3, 5)] + [base]
    return [base for base in dict.fromkeys((*USUAL, *found)) if base > 1 and base != spec.base]


def _frequencies(case: Case, wrong: list[Comparison], inputs: dict[str, Tensor]) -> Tensor | None:
    """``[P]`` radians per position, as far as the smallest positive position of each pair shows them."""
    by_name = {c.short.rpartition(".")[2]: c.got for c in wrong}
    if "inv_freq" in by_name:
        return by_name["inv_freq"]
    shares = torch.tensor(case.spec.axes.weights(case.spec.pairs), dtype=torch.float64)
    at = (case.positions.double().T @ shares) * case.spec.position_scale  # [S, P]
    at = torch.where(at > 0, at, math.inf)
    smallest, token = at.min(dim=0)
    angles = _seen_angles(case, by_name, inputs)
    if angles is None:
        return None
    return angles.gather(0, token.unsqueeze(0)).squeeze(0) / smallest


def _seen_angles(case: Case, by_name: dict[str, Tensor], inputs: dict[str, Tensor]) -> Tensor | None:
    """``[S, P]`` angles between 0 and half a turn."""
    sign = -1.0 if case.spec.reverse else 1.0
    cos, sin = by_name.get("cos"), by_name.get("sin")
    if cos is not None and sin is not None:
        return torch.atan2(sign * sin, cos)
    if cos is not None:
        return (cos / case.cos_factor).clamp(-1, 1).acos()
    if sin is not None:
        return (sign * sin / case.sin_factor).clamp(-1, 1).asin()
    for name, y in by_name.items():
        if name.endswith("_out"):
            target, spec = name.removesuffix("_out"), case.spec
            back = -sign if target == "output" else sign
            a, b = spec.layout.split(inputs[target].double()[0, 0])
            c, d = spec.layout.written().split(y[0, 0])
            return torch.atan2(back * (a * d - b * c), a * c + b * d)
    return None
