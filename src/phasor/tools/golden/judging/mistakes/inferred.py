"""What can be read off the other implementation's tensors: its angles, and from them its frequencies and positions."""

import math

import torch
from torch import Tensor

from .....rotary.axes import Mixed
from ..case import Case
from ..comparison import TELLING, Comparison

SURE = 0.02  # radians that all pairs of a token may be off from one whole position


def frequencies(case: Case, wrong: list[Comparison], inputs: dict[str, Tensor]) -> Tensor | None:
    """``[P]`` radians per position, read at the smallest position and refined at ever farther ones."""
    by_name = {c.short.rpartition(".")[2]: c.got for c in wrong}
    if "inv_freq" in by_name:
        return by_name["inv_freq"] if len(by_name["inv_freq"]) == case.spec.pairs else None
    angles = _angles(case, by_name, inputs)
    if angles is None:
        return None
    at = _positions_of_pairs(case)
    noise = 1e-2 if any(torch.finfo(c.came).bits < 32 for c in wrong if c.came.is_floating_point) else 1e-4
    found = torch.zeros(at.shape[-1], dtype=torch.float64)
    error = torch.full_like(found, math.inf)
    for token in at.abs().max(-1).values.argsort().tolist():
        here = at[token]
        usable = (here > 0) & (here * found < TELLING) & ((error * here < 1) | error.isinf())
        guess = _nearest(angles[:, token], torch.where(error.isinf(), math.pi / 2, found * here)) / here
        found = torch.where(usable, guess, found)
        error = torch.where(usable, noise / here, error)
    return None if error.isinf().all() else found


def positions(case: Case, wrong: list[Comparison], inputs: dict[str, Tensor]) -> Tensor | None:
    """``[A, S]``: the whole position at which each token was turned, nan where none fits; None if none can be read."""
    by_name = {c.short.rpartition(".")[2]: c.got for c in wrong if not c.short.endswith("inv_freq")}
    angles = _angles(case, by_name, inputs)
    if angles is None or case.spec.coordinates == "real" or isinstance(case.spec.axes, Mixed):
        return None
    speeds = case.spec.inv_freq(case.seq_len) if case.frequencies is None else case.frequencies
    speeds = speeds * case.spec.position_scale
    turning = [p for p in speeds.argsort().tolist() if speeds[p] > 0]
    owner = case.spec.axes.axis_of_pair(case.spec.pairs)
    rows = [_of_axis(angles, speeds, [p for p in turning if owner[p] == a]) for a in range(case.spec.axes.count)]
    return torch.stack(rows)


def _of_axis(angles: Tensor, speeds: Tensor, turning: list[int]) -> Tensor:
    """``[S]``, as these pairs show it, the slowest first."""
    found = torch.zeros(angles.shape[1], dtype=torch.float64)
    if not turning:
        return found * math.nan
    for n, pair in enumerate(turning):
        guess = found * speeds[pair] if n else torch.full_like(found, 1e-9)
        found = _nearest(angles[:, :, pair], guess) / speeds[pair]
    found = found.round()
    off = torch.stack([(_nearest(angles[:, :, p], found * speeds[p]) - found * speeds[p]).abs() for p in turning])
    return torch.where(off.max(0).values < SURE, found, math.nan)


def _nearest(angles: Tensor, guess: Tensor) -> Tensor:
    """Of the angles that would look alike, ``[ways, …]`` and whole turns apart, the one nearest to a guess."""
    apart = torch.remainder(angles - guess + math.pi, 2 * math.pi) - math.pi
    return guess + apart.gather(0, apart.abs().nan_to_num(99.0).argmin(0, keepdim=True)).squeeze(0)


def _positions_of_pairs(case: Case) -> Tensor:
    shares = torch.tensor(case.spec.axes.weights(case.spec.pairs), dtype=torch.float64)
    return (case.positions.double().T @ shares) * case.spec.position_scale  # [S, P]


def _angles(case: Case, by_name: dict[str, Tensor], inputs: dict[str, Tensor]) -> Tensor | None:
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
            back = -sign if target == "output" else sign
            a, b = spec.layout.split(inputs[target].double()[0, 0])
            c, d = spec.layout.written().split(y[0, 0])
            return torch.atan2(back * (a * d - b * c), a * c + b * d).unsqueeze(0)
    return None
