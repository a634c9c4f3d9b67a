"""Which pairs turn by which axis of a picture or a clip, and how: the words for what `grids` shows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .grid import CLOSE, LEAST, Grid, unwrapped, wrapped
from .sites import Side, Site

NAMES = {1: ("index",), 2: ("row", "column"), 3: ("frame", "row", "column")}
Finest = Mapping[int, tuple[int, ...]]  # number of tokens -> the shape with most axes that was seen


@dataclass(frozen=True)
class TurnedBy:
    """``pairs`` turn along ``axis``, one whole turn in each of ``waves`` (steps of the axis, the shortest first).

    ``start``: where the first of ``count`` tokens stands, in steps; None where that is not to be seen.
    ``even``: whether all steps are alike; ``own``: whether heads differ, and the pairs are those of all of them.
    """

    axis: str
    pairs: int
    waves: tuple[float, ...]
    start: float | None
    count: int
    even: bool
    own: bool

    def __str__(self) -> str:
        pairs = f"{self.pairs} pair{'s' if self.pairs > 1 else ''}{', of all heads together' if self.own else ''}"
        shortest, *_, longest = (*self.waves, self.waves[-1])
        waves = f"{shortest:.4g}" + (f" to {longest:.4g}" if longest > shortest else "")
        start = "" if self.start is None else f", from {round(self.start, 3) + 0:g}"
        if self.start is not None and math.isclose(self.start, (1 - self.count) / 2, abs_tol=LEAST):
            start = ", centred"
        return f"{self.axis}: {pairs}, one turn in {waves}{start}{'' if self.even else ', in uneven steps'}"


def finest(found: Sequence[Grid]) -> Finest:
    """Of tokens that turn by time alone, others may show that they are pictures, too."""
    shapes: dict[int, tuple[int, ...]] = {}
    for grid in sorted(found, key=lambda one: len(one.shape)):
        shapes[math.prod(grid.shape)] = grid.shape
    return shapes


def turned_by(grid: Grid, known: Finest) -> Iterator[TurnedBy]:
    """One for each axis of a grid, then those of the pairs that turn along several axes at once."""
    own = bool(((grid.steps - grid.steps[:1]).abs() > LEAST * grid.steps.abs().amax()).any())
    steps, first, moves = (t.flatten(0, 1) if own else t[0] for t in (grid.steps, grid.first, grid.moves))
    names, several = _names(grid, known), moves.sum(1) > 1
    for a, name in enumerate(names):
        mine = moves[:, a] & ~several
        if mine.any():
            ladder = unwrapped(steps[mine, a])
            slow = int(ladder.abs().argmin())
            even = bool((grid.at[a] == torch.arange(grid.shape[a])).all())
            at = float(first[mine][slow] / ladder[slow])
            start = at if bool((wrapped(first[mine] - at * ladder).abs() <= CLOSE).all()) else None
            yield TurnedBy(name, len(ladder), _waves(ladder), start, grid.shape[a], even, own)
    for some in moves[several].unique(dim=0):
        mine = (moves == some).all(1)
        axis = " and ".join(name for name, turns in zip(names, some.tolist(), strict=True) if turns)
        yield TurnedBy(axis, int(mine.sum()), _waves(steps[mine][:, some]), None, 0, True, own)


def name_of(coordinate: Tensor, found: Sequence[Grid]) -> str:
    """What a coordinate of all tokens counts: the one axis of the finest grid along which it grows."""
    grid = max(found, key=lambda one: len(one.shape))
    at = coordinate[grid.start : grid.stop].view(grid.shape)
    along = [axis for axis, size in enumerate(grid.shape) if size > 1 and bool(at.diff(dim=axis).any())]
    names = NAMES.get(len(grid.shape), ())
    return names[along[0]] if len(along) == 1 and along[0] < len(names) else "index"


def reaches(side: Side) -> dict[str, float]:
    """What each coordinate of a side counts, and how far it reaches: as many of its mean steps as it has places."""
    if isinstance(found := side.frequencies, str) or not side.grids:
        return {}
    ends = (found.before, found.after)
    named = {name_of(nn.functional.pad(at, ends), side.grids): at.unique() for at in found.coordinates}
    return {name: float(at[-1] - at[0]) * len(at) / max(len(at) - 1, 1) for name, at in named.items()}


def _waves(steps: Tensor) -> tuple[float, ...]:
    return tuple((2 * math.pi / steps.abs()).flatten().sort().values.tolist())


def _names(grid: Grid, known: Finest) -> tuple[str, ...]:
    """By how many tokens lie between two neighbours along an axis."""
    shape = known.get(math.prod(grid.shape), grid.shape)
    names = NAMES.get(len(shape), tuple(f"axis {i}" for i in range(len(shape))))
    strides = {math.prod(shape[i + 1 :]): name for i, name in enumerate(names)}
    return tuple(strides.get(math.prod(grid.shape[i + 1 :]), f"axis {i}") for i in range(len(grid.shape)))


def in_words(found: Sequence[Grid], known: Finest) -> str:
    """What turns in each part of the tokens.

    >>> in_words((), {})
    ''
    """
    parts = []
    for grid in found:
        size = " x ".join(map(str, grid.shape))
        turned = "; ".join(map(str, turned_by(grid, known)))
        parts.append(f"tokens {grid.start}-{grid.stop - 1}, {size}: {turned}" if turned else "")
    return " | ".join(part for part in parts if part)


def axes_of(sites: Sequence[Site]) -> list[tuple[str, list[Site]]]:
    """Of pictures and clips: what turns by the frame, the row and the column, in words, and the attentions of which."""
    sides = [(site, side) for site in sites for side in (site.q, site.k) if _has_axes(side)]
    known = finest([grid for _, side in sides for grid in side.grids])
    found: dict[str, list[Site]] = {}
    for site, side in sides:
        same = found.setdefault(in_words(side.grids, known), [])
        same += [site] if site not in same else []
    return [(words, where) for words, where in found.items() if words]


def _has_axes(side: Side) -> bool:
    """Whether a side turns, and not by one number for each token."""
    return side.turns and (isinstance(side.frequencies, str) or len(side.frequencies.coordinates) > 1)
