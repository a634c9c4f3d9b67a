"""Why two rotations disagree: in which field, which pair, and from which position on."""

import math
from dataclasses import dataclass
from typing import Any

from ..spec import RotarySpec

THRESHOLD = 0.1  # radians between the two angles of one pair: the point from which the rotations are called different


@dataclass(frozen=True)
class Disagreement:
    """What separates two specs. Positions are the first at which the angles of a pair differ by `THRESHOLD` radians.

    ``everywhere`` says that already position 1 differs because channels are paired otherwise; ``pair`` and ``position``
    name the pair that parts first (None if all frequencies agree); ``score_ratio`` is the ratio of the squared
    attention factors, a difference at every position.
    """

    fields: dict[str, tuple[Any, Any]]
    everywhere: bool
    pair: int | None
    position: int | None
    pairs_apart: int
    score_ratio: float

    @property
    def same(self) -> bool:
        """Whether both rotate alike at every position (fields may differ in words only)."""
        return not self.everywhere and self.pair is None and self.score_ratio == 1.0

    def describe(self) -> str:
        """Sentences for people."""
        if self.same:
            return "both rotate alike at every position"
        said = []
        if self.everywhere:
            said.append("channels are paired differently: they disagree at every position but 0")
        if self.pair is not None:
            said.append(
                f"{self.pairs_apart} pairs turn at other speeds: pair {self.pair} is {THRESHOLD:g} rad off "
                f"from position {self.position:,} on"
            )
        if self.score_ratio != 1.0:
            said.append(f"scores of the second are {self.score_ratio:.4g} times those of the first at every position")
        return "; ".join(said)


def compare(a: RotarySpec, b: RotarySpec, seq_len: int | None = None) -> Disagreement:
    """Compare two specs at one sequence length.

    >>> d = compare(RotarySpec(head_dim=4, base=100.0), RotarySpec(head_dim=4, base=10000.0))
    >>> d.pair, d.position  # 0.1 against 0.01 rad per token: 0.09 apart after one, above 0.1 after two
    (1, 2)
    """
    layout = ("head_dim", "rotary_dim", "interleaved", "trailing", "axes")
    everywhere = any(getattr(a, name) != getattr(b, name) for name in layout)
    pair = position = None
    gaps: list[float] = []
    if a.pairs == b.pairs:
        gaps = (a.inv_freq(seq_len) - b.inv_freq(seq_len)).abs().tolist()
        widest = max(range(len(gaps)), key=gaps.__getitem__)
        if gaps[widest] > 0:
            pair, position = widest, math.ceil(THRESHOLD / gaps[widest])
    ratio = (b.attention_factor(seq_len) / a.attention_factor(seq_len)) ** 2
    return Disagreement(a.diff(b), everywhere, pair, position, sum(g > 0 for g in gaps), ratio)
