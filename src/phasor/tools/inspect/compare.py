"""Why two rotations disagree: in which field, which pair, and from which position on."""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ...rotary.spec import RotarySpec

THRESHOLD = 0.1  # radians between the two angles of one pair: the point from which the rotations are called different


@dataclass(frozen=True)
class Disagreement:
    """What separates two specs. Positions are the first at which the angles of a pair differ by `THRESHOLD` radians.

    ``width`` says that heads have other numbers of channels, or of channels that turn; ``layout`` that channels are
    paired otherwise, a difference at every position but 0; ``permuted`` that one of them writes halves; ``axes`` that
    other coordinates turn the pairs, which shows where a token's coordinates differ, and ``second`` the same of the
    pairs' second members; ``learned`` that a trained log-scale changes the frequencies of one. ``pair`` and
    ``position`` name the pair that parts first (None if all frequencies agree); real coordinates have no next position,
    there it is the distance from 0, rounded. ``score_ratio`` is the ratio of the squared attention factors, a
    difference at every position. ``seq_len`` is the length of the sequence compared, for scalings that ask for it.

    >>> a = RotarySpec(head_dim=4)
    >>> compare(a, a.replace(interleaved=True)).describe()
    'channels are paired differently: they disagree at every position but 0'
    """

    fields: dict[str, tuple[Any, Any]]
    width: bool
    layout: bool
    permuted: bool
    axes: bool
    second: bool
    learned: bool
    pair: int | None
    position: float | None
    pairs_apart: int
    score_ratio: float
    seq_len: int | None

    @property
    def same(self) -> bool:
        """Whether both rotate alike at every position (fields may differ in words only)."""
        apart = self.width or self.layout or self.permuted or self.axes or self.second or self.learned
        return not apart and self.pair is None and self.score_ratio == 1.0

    def describe(self) -> str:
        """Sentences for people."""
        where = "" if self.seq_len is None else f" in sequences of {self.seq_len:,} tokens"
        if self.same:
            return f"both rotate alike at every position{where}"
        said = []
        if "head_dim" in self.fields:
            said.append("heads have {} and {} channels: no tensor fits both".format(*self.fields["head_dim"]))
        elif self.width:
            widths = "{} and {}".format(*self.fields["rotary_dim"])
            said.append(f"{widths} channels of a head turn: they disagree at every position but 0")
        if self.layout:
            said.append("channels are paired differently: they disagree at every position but 0")
        if self.permuted:
            said.append("one of them writes its pairs as halves: other tensors, and the same scores if q and k agree")
        if self.axes:
            said.append("other axes turn the pairs: they disagree where a token's coordinates differ (not in text)")
        if self.second:
            said.append("the second members of the pairs turn otherwise: they disagree where coordinates differ")
        if self.learned:
            said.append("a trained log-scale changes the frequencies of one of them; it is left out here")
        if self.pair is not None:
            speeds = "the other way" if "reverse" in self.fields else "at other speeds"
            said.append(
                f"{self.pairs_apart} pairs turn {speeds}{where}: pair {self.pair} is {THRESHOLD:g} rad off "
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
    pair = position = None
    gaps: list[float] = []
    if a.pairs == b.pairs:
        gaps = (_speeds(a, seq_len) - _speeds(b, seq_len)).abs().tolist()
        widest = max(range(len(gaps)), key=gaps.__getitem__)
        if gaps[widest] > 0:
            apart = THRESHOLD / gaps[widest]
            real = "real" in (a.coordinates, b.coordinates)
            pair, position = widest, float(f"{apart:.3g}") if real else math.ceil(apart)
    return Disagreement(
        fields=a.diff(b),
        width=(a.head_dim, a.rotary_dim) != (b.head_dim, b.rotary_dim),
        layout=(a.interleaved, a.trailing, a.blocks) != (b.interleaved, b.trailing, b.blocks),
        permuted=a.permuted != b.permuted,
        axes=a.axes != b.axes,
        second=a.second != b.second,
        learned=a.learned != b.learned,
        pair=pair,
        position=position,
        pairs_apart=sum(g > 0 for g in gaps),
        score_ratio=(b.attention_factor(seq_len) / a.attention_factor(seq_len)) ** 2,
        seq_len=seq_len if a.length_dependent or b.length_dependent else None,
    )


def _speeds(spec: RotarySpec, seq_len: int | None) -> Tensor:
    """Radians per unit of position, with their sign."""
    return spec.inv_freq(seq_len) * spec.position_scale * (-1 if spec.reverse else 1)


def compare_lengths(a: RotarySpec, b: RotarySpec, seq_len: int) -> list[Disagreement]:
    """`compare`, for length-dependent scalings in both regimes: inside the trained length and at ``seq_len``.

    >>> a = RotarySpec(head_dim=4)
    >>> [found.same for found in compare_lengths(a, a, 4096)]  # no scaling, one regime
    [True]
    """
    far = compare(a, b, seq_len)
    return [compare(a, b, 1), far] if far.seq_len is not None and seq_len > 1 else [far]
