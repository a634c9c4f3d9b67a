"""Why two rotations disagree: in which field, which pair, and from which position on."""

import math
from dataclasses import dataclass
from typing import Any

from ..spec import RotarySpec

THRESHOLD = 0.1  # radians between the two angles of one pair: the point from which the rotations are called different


@dataclass(frozen=True)
class Disagreement:
    """What separates two specs. Positions are the first at which the angles of a pair differ by `THRESHOLD` radians.

    ``layout`` says that channels are paired otherwise, a difference at every position but 0; ``axes`` that other
    coordinates turn the pairs, which shows where a token's coordinates differ; ``pair`` and ``position`` name the pair
    that parts first (None if all frequencies agree); ``score_ratio`` is the ratio of the squared attention factors, a
    difference at every position. ``seq_len`` is the length of the sequence compared, for scalings that ask for it.
    """

    fields: dict[str, tuple[Any, Any]]
    layout: bool
    axes: bool
    pair: int | None
    position: int | None
    pairs_apart: int
    score_ratio: float
    seq_len: int | None

    @property
    def same(self) -> bool:
        """Whether both rotate alike at every position (fields may differ in words only)."""
        return not self.layout and not self.axes and self.pair is None and self.score_ratio == 1.0

    def describe(self) -> str:
        """Sentences for people."""
        where = "" if self.seq_len is None else f" in sequences of {self.seq_len:,} tokens"
        if self.same:
            return f"both rotate alike at every position{where}"
        said = []
        if self.layout:
            said.append("channels are paired differently: they disagree at every position but 0")
        if self.axes:
            said.append("other axes turn the pairs: they disagree where a token's coordinates differ (not in text)")
        if self.pair is not None:
            said.append(
                f"{self.pairs_apart} pairs turn at other speeds{where}: pair {self.pair} is {THRESHOLD:g} rad off "
                f"from position {self.position:,} on"
            )
        if self.score_ratio != 1.0:
            said.append(f"scores of the second are {self.score_ratio:.4g} times those of the first{where}")
        return "; ".join(said)


def compare(a: RotarySpec, b: RotarySpec, seq_len: int | None = None) -> Disagreement:
    """Compare two specs at one sequence length (None: inside the trained length).

    >>> d = compare(RotarySpec(head_dim=4, base=100.0), RotarySpec(head_dim=4, base=10000.0))
    >>> d.pair, d.position  # 0.1 against 0.01 rad per token: 0.09 apart after one, above 0.1 after two
    (1, 2)
    """
    names = ("head_dim", "rotary_dim", "interleaved", "trailing")
    pair = position = None
    gaps: list[float] = []
    if a.pairs == b.pairs:
        gaps = (a.inv_freq(seq_len) - b.inv_freq(seq_len)).abs().tolist()
        widest = max(range(len(gaps)), key=gaps.__getitem__)
        if gaps[widest] > 0:
            pair, position = widest, math.ceil(THRESHOLD / gaps[widest])
    return Disagreement(
        fields=a.diff(b),
        layout=any(getattr(a, name) != getattr(b, name) for name in names),
        axes=a.axes != b.axes,
        pair=pair,
        position=position,
        pairs_apart=sum(g > 0 for g in gaps),
        score_ratio=(b.attention_factor(seq_len) / a.attention_factor(seq_len)) ** 2,
        seq_len=seq_len if a.length_dependent or b.length_dependent else None,
    )


def compare_lengths(a: RotarySpec, b: RotarySpec, seq_len: int) -> list[Disagreement]:
    """`compare`, for length-dependent scalings in both regimes: inside the trained length and at ``seq_len``."""
    far = compare(a, b, seq_len)
    return [compare(a, b, 1), far] if far.seq_len is not None and seq_len > 1 else [far]
