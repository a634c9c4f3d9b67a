"""A ranking of readings by the loss of the same windows of text, with a margin that says what cannot be told apart."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor

from .losses import MARGIN, at_least, beats_a_guess

SHOWN = 8

Verdict = Literal["as stated", "another", "cannot tell"]


@dataclass(frozen=True)
class RankingRow:
    """One reading: its ``loss`` in nats per token, how much more than the best one's it is (``behind``; ``at_least`` so
    much in nearly all resamples of the windows), and over how many ``windows``."""

    name: str
    loss: float
    behind: float
    at_least: float
    windows: int

    @property
    def told(self) -> bool:
        """Whether the text tells it from the best one."""
        return self.at_least > MARGIN


@dataclass(frozen=True)
class Ranking:
    """Readings in the order of their losses, the best first.

    - ``stated``: the name of the reading that the config states.
    - ``length``: tokens of a window.
    - ``left_out``: readings that were not tried, and why.

    - ``knows``: whether the best reading beats a uniform guess; where none does, nothing is told.

    ``verdict`` is ``"another"`` only if the stated reading is behind the best one by more than `MARGIN` in nearly all
    resamples of the windows (0.999), ``"as stated"`` if all others are so behind the stated one, and else
    ``"cannot tell"``.

    >>> rows = (RankingRow("base 500000", 1.7, 0.0, 0.0, 9), RankingRow("as stated", 2.5, 0.8, 0.7, 9))
    >>> Ranking(rows, "as stated", 64).verdict
    'another'
    """

    rows: tuple[RankingRow, ...]
    stated: str
    length: int
    left_out: tuple[tuple[str, str], ...] = ()
    knows: bool = True

    @property
    def best(self) -> str:
        """The name of the reading with the lowest loss."""
        return self.rows[0].name

    @property
    def tied(self) -> tuple[str, ...]:
        """The best reading, and all that the text cannot tell from it."""
        return tuple(row.name for row in self.rows if not row.told)

    @property
    def verdict(self) -> Verdict:
        if not self.knows:
            return "cannot tell"
        if self.stated not in self.tied:
            return "another"
        return "as stated" if self.tied == (self.stated,) else "cannot tell"

    @property
    def exit_code(self) -> int:
        """1 if the text speaks against the stated reading, else 0."""
        return int(self.verdict == "another")

    def says(self) -> str:
        """The verdict in one line."""
        others = [name for name in self.tied if name != self.stated]
        if self.verdict == "as stated":
            return "the weights are as stated: every other reading predicts this text worse"
        if not self.knows:
            return "cannot tell: no reading beats a uniform guess on this text: untrained, or trained on other text"
        if self.verdict == "cannot tell":
            return f"cannot tell: this text does not tell the stated reading from {'; '.join(others)}"
        stated = next(row for row in self.rows if row.name == self.stated)
        how = f"loss {self.rows[0].loss:.3f} where the stated reading has {stated.loss:.3f}"
        if len(self.tied) == 1:
            return f"the weights are not as stated, but: {self.best} ({how})"
        more = f" and {len(self.tied) - SHOWN} more" if len(self.tied) > SHOWN else ""
        return (
            f"the weights are not as stated; this text cannot tell between {'; '.join(self.tied[:SHOWN])}{more} ({how})"
        )

    def __str__(self) -> str:
        wide = max(44, *(len(row.name) + 1 for row in self.rows))
        lines = [self.says(), "", f"{'reading':<{wide}}{'loss':>7}{'behind':>8}"]
        lines += [
            f"{row.name:<{wide}}{row.loss:>7.3f}{row.behind:>8.3f}{'' if row.told else ' ='}" for row in self.rows
        ]
        lines.append(
            f"{self.rows[0].windows} windows of {self.length} tokens (those far behind were read in part); =: not told "
            f"from the best, by a margin of {MARGIN} nats and a paired bootstrap over windows"
        )
        for why in dict.fromkeys(why for _, why in self.left_out):
            names = [name for name, told in self.left_out if told == why]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            lines.append(f"not tried: {', '.join(names[:SHOWN])}{more}: {why}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            "verdict": self.verdict, "says": self.says(), "best": self.best, "tied": list(self.tied),
            "stated": self.stated, "knows": self.knows, "length": self.length,
            "margin": MARGIN,
            "rows": [asdict(row) for row in self.rows],
            "left_out": [{"name": name, "why": why} for name, why in self.left_out],
        }  # fmt: skip


def ranked(losses: dict[str, Tensor], stated: str, left_out: dict[str, str], words: int) -> Ranking:
    """The ranking of losses ``[n, L]`` by name, of a model of ``words`` words.

    Where ``n`` differs, only the first windows of both are compared.
    """
    most = max(map(len, losses.values()))
    best = min((n for n in losses if len(losses[n]) == most), key=lambda name: float(losses[name].mean()))
    rows = []
    for name, own in losses.items():
        behind = (own - losses[best][: len(own)]).mean(1).numpy()
        least = 0.0 if name == best else at_least(behind)
        rows.append(RankingRow(name, float(own.mean()), float(behind.mean()), least, len(own)))
    rows.sort(key=lambda row: (row.behind, row.name != stated))
    knows = beats_a_guess(losses[best].mean(1).numpy(), words)
    return Ranking(tuple(rows), stated, losses[best].shape[1], tuple(left_out.items()), knows)
