"""What can be said in numbers about one rotary encoding: wavelengths, turns, regimes, decay, errors, bytes."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec
from .curves import decay, first_negative

IN_EACH = 128  # distances looked at in one stretch
FARTHEST = 2**18  # where the search for the first negative mean cosine stops


@dataclass(frozen=True)
class SpecFacts:
    """Numbers of one spec at one trained length and one maximum length, all lists in pair order.

    ``wavelengths`` in positions per turn (``inf`` for a stopped pair), after scaling. ``turns`` are completed inside
    the trained length before any scaling, as they were when the model was trained to it; empty if it is not known.
    ``window`` is the number of positions that the layers see (None: all); no distance goes beyond it, in ``turns``, in
    ``first_negative``, or in a drawn curve: ``farthest`` is the largest one. ``regimes``: what the scaling does to each
    pair, one of ``kept``, ``blended``, ``slowed``, ``stopped``. With several coordinates, decay and errors are those
    where all of them move together. A learned log-scale is taken as 0. ``first_negative`` is searched at integer
    positions only.

    >>> spec_facts(RotarySpec(head_dim=4, base=100.0), max_position=32).table_bytes  # 2 pairs of cos and sin, 4 bytes
    512
    """

    spec: RotarySpec
    seq_len: int | None
    trained_length: int | None
    max_position: int
    window: int | None
    inv_freq: tuple[float, ...]
    wavelengths: tuple[float, ...]
    turns: tuple[float, ...]
    regimes: tuple[str, ...]
    attention_factor: float
    first_negative: int | None
    float32_error: float
    table_bytes: int

    @property
    def never_turn(self) -> int | None:
        """Pairs that never complete a turn inside the trained length (stopped pairs not counted); None if unknown."""
        return None if self.trained_length is None else sum(0 < t < 1 for t in self.turns)

    @property
    def farthest(self) -> int:
        """The largest distance between two tokens that see each other."""
        if self.spec.coordinates == "real":
            return self.max_position
        return max(1, min(self.max_position, self.window or self.max_position) - 1)

    def count(self, regime: str) -> int:
        """The number of pairs in that regime."""
        return self.regimes.count(regime)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data; the wavelength of a stopped pair is None."""
        data = {k: v for k, v in vars(self).items() if k != "spec"}
        data["wavelengths"] = [w if math.isfinite(w) else None for w in self.wavelengths]
        return {"spec": self.spec.to_dict(), **data, "never_turn": self.never_turn}


@lru_cache(maxsize=256)
def spec_facts(
    spec: RotarySpec,
    max_position: int,
    seq_len: int | None = None,
    trained_length: int | None = None,
    window: int | None = None,
) -> SpecFacts:
    """Measure a spec for positions below ``max_position``. Length-dependent schemes are taken at ``seq_len``.

    ``trained_length`` is that of the scaling, if it names one; else the argument, ``None`` where it is not known.
    ``window``: no two tokens farther apart than this see each other.

    >>> facts = spec_facts(RotarySpec(head_dim=4, base=100.0), max_position=32, trained_length=32)
    >>> [round(w, 2) for w in facts.wavelengths], facts.never_turn
    ([6.28, 62.83], 1)
    """
    frequencies = spec.inv_freq(seq_len).tolist()
    trained = (spec.scaling and spec.scaling.trained_length) or trained_length
    original = spec.replace(scaling=None) if spec.scaling and spec.scaling.trained_length else spec
    seen = None if trained is None else min(trained, window or trained)
    integer = spec.coordinates == "integer"
    reach = min(max_position, window or max_position, FARTHEST)
    return SpecFacts(
        spec=spec,
        seq_len=seq_len,
        trained_length=trained,
        max_position=max_position,
        window=window,
        inv_freq=tuple(frequencies),
        wavelengths=_wavelengths(spec, seq_len),
        turns=() if seen is None else tuple(seen / w for w in _wavelengths(original, seq_len)),
        regimes=regimes(spec, seq_len),
        attention_factor=spec.attention_factor(seq_len),
        first_negative=first_negative(spec, seq_len, reach) if integer else None,
        float32_error=float32_error(spec, max_position, seq_len),
        table_bytes=2 * 4 * spec.pairs * max_position,
    )


def _wavelengths(spec: RotarySpec, seq_len: int | None) -> tuple[float, ...]:
    frequencies = (spec.inv_freq(seq_len) * spec.position_scale).abs().tolist()
    return tuple(2 * math.pi / f if f else math.inf for f in frequencies)


def regimes(spec: RotarySpec, seq_len: int | None = None) -> tuple[str, ...]:
    """What the scaling does to each pair, against the ladder without it.

    ``kept`` within a part in a million, ``slowed`` by the scheme's full factor, ``blended`` in between.
    """
    exact = spec.replace(angles="exact")
    scaled = exact.inv_freq(seq_len)
    plain = scaled if spec.frequencies else exact.replace(scaling=None).inv_freq()
    factor = None if spec.scaling is None else spec.scaling.factor_at(seq_len)
    full = None if factor is None else float(factor)

    def regime(ratio: float, frequency: float) -> str:
        if frequency == 0:
            return "stopped"
        if abs(ratio - 1) < 1e-6:
            return "kept"
        return "slowed" if full is not None and abs(ratio * full - 1) < 1e-6 else "blended"

    return tuple(regime(r, f) for r, f in zip((scaled / plain).tolist(), scaled.tolist(), strict=True))


def float32_error(spec: RotarySpec, max_position: int, seq_len: int | None = None, window: int = 512) -> float:
    """Largest error of cos or sin from float32 angles over the last ``window`` positions below ``max_position``.

    Real coordinates lie between these positions as well, an eighth apart.
    """
    at = torch.arange(max(0, max_position - window), max_position)
    if spec.coordinates == "real":
        at = torch.arange(8 * max(0, max_position - window), 8 * max_position) / 8
    if spec.axes.count > 1:
        at = at.expand(spec.axes.count, -1)
    length = seq_len or 1  # inside the trained length, for schemes that ask
    spec = spec.replace(learned=False)
    exact = Rotation.at(spec.replace(angles="exact"), at, length, dtype=torch.float64)
    usual = Rotation.at(spec.replace(angles="float32", tables="float32"), at, length)
    return max(_gap((exact.cos, exact.sin), (usual.cos, usual.sin)), _gap(exact.second, usual.second))


def _gap(exact: tuple[Tensor, ...] | None, usual: tuple[Tensor, ...] | None) -> float:
    pairs = zip(exact or (), usual or (), strict=True)
    return max((float((a - b).abs().max()) for a, b in pairs), default=0.0)


def lowest_decay(facts: SpecFacts, columns: int, axis: int | None = None) -> list[float]:
    """The lowest `decay` in each of up to ``columns`` stretches of distances, from 1 to the farthest.

    Stretches are even on a log scale. In a short one every distance is looked at, in a long one `IN_EACH` of them, and
    the first negative one in any case. Real coordinates begin at 1/64.

    >>> low = lowest_decay(spec_facts(RotarySpec(head_dim=128), 4096), 8)
    >>> [value < 0 for value in low]  # negative from 1707 on
    [False, False, False, False, False, False, False, True]
    """
    edges = log_distances(facts, columns + 1).unique()
    real = facts.spec.coordinates == "real"
    rows = []
    for n, (start, end) in enumerate(pairwise(edges.tolist()), 2):
        last = n == len(edges)
        inside = torch.linspace(start, end if real or last else end - 1, IN_EACH, dtype=torch.float64)
        first = facts.first_negative
        if first is not None and start <= first <= end:
            inside[0 if first == start else -1] = first
        rows.append(inside if real else inside.round().long())
    once, back = torch.stack(rows).unique(return_inverse=True)
    low: list[float] = decay(facts.spec, once, facts.seq_len, axis)[back].min(-1).values.tolist()
    return low


def log_distances(facts: SpecFacts, count: int) -> Tensor:
    """Distances up to the farthest, evenly spaced on a log scale: whole ones, unless coordinates are real."""
    last = math.log10(max(2, facts.farthest))
    if facts.spec.coordinates == "real":
        return torch.logspace(-math.log10(64), last, count, dtype=torch.float64)
    return torch.logspace(0, last, count, dtype=torch.float64).round().long()
