"""The grids on which tokens stand, read off their angles alone: which pairs turn from row to row, which within one.

A picture's tokens are one row after the other, a clip's one frame after the other. So angles repeat: they are a sum of
what the row, the column and the frame give, each of them modulo whole turns.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .operator import Operator
from .tape import Tape

CLOSE = 0.02  # radians: tables in half precision, and fast pairs in float32
STILL = 1e-9  # radians per step
LEAST = 1e-3  # of a pair's step along its own axis: less is rounding
WHOLE = 1e-4  # of a coordinate: nearer to a whole number it is one
MOST_TRIED = 8  # pairs that may say where tokens stand
MOST_SPLIT = 256  # tokens that are looked through for the place where a second part begins


@dataclass(frozen=True, eq=False)
class Grid:
    """Tokens from ``start`` stand in ``shape``, the fastest axis last.

    ``steps [heads, pairs, axes]``: radians from one token to the next along each axis. ``at``: where they stand on each
    axis, in its mean steps, the first at 0. ``first [heads, pairs]``: the angles of the first token.
    """

    start: int
    shape: tuple[int, ...]
    steps: Tensor
    at: tuple[Tensor, ...]
    first: Tensor

    @property
    def stop(self) -> int:
        return self.start + math.prod(self.shape)

    @property
    def moves(self) -> Tensor:
        """``[heads, pairs, axes]``: along which axes each pair turns."""
        size = self.steps.abs()
        return (size > STILL) & (size > LEAST * size.amax(-1, keepdim=True))


def grids(tape: Tape, seen: Operator) -> tuple[Grid, ...]:
    """The grids of those parts of the tokens that were put one after the other; where several ways fit, the plainest.

    Parts that stand still, or that are no grid, are left out.
    """
    angles = seen.angles
    key = (angles.shape, angles.numpy().tobytes())
    if key not in tape.grids:
        tape.grids[key] = _grids(tape, angles)
    return tape.grids[key]


def _grids(tape: Tape, angles: Tensor) -> tuple[Grid, ...]:
    best: tuple[Grid, ...] = ()
    moving = angles.abs().amax((0, 1)) > STILL
    ways = list(_parts(tape, angles.shape[-1]))
    for look in (_grid, _two):
        for parts in ways:
            here = tuple(one for a, b in parts for one in look(angles[..., a:b], a))
            if _told(here) > _told(best):
                best = here
            left = moving.clone()
            for one in here:
                left[one.start : one.stop] = False
            if not left.any():
                return here
    return best


def _told(found: Sequence[Grid]) -> int:
    """How much is said: tokens, once for each axis."""
    return sum(math.prod(one.shape) * len(one.shape) for one in found)


def _parts(tape: Tape, tokens: int) -> Iterator[list[tuple[int, int]]]:
    """All tokens; then as the tape put parts of so many together."""
    yield [(0, tokens)]
    sizes = dict.fromkeys(
        tuple(tape.values[i].shape[axis] for i in o.inputs)
        for o in tape.operations
        if o.name == "cat" and o.outputs[0] is not None
        for axis, size in enumerate(tape.values[o.outputs[0]].shape)
        if size == tokens and all(tape.values[i].ndim > axis for i in o.inputs)
    )
    for parts in sizes:
        if sum(parts) == tokens:
            ends = torch.tensor(parts).cumsum(0).tolist()
            yield [(a, b) for a, b in zip([0, *ends[:-1]], ends, strict=True) if a < b]  # a part may be empty


def _two(angles: Tensor, start: int) -> tuple[Grid, ...]:
    """The grid of a part, or those of two parts of it: a picture behind text that was not put before it as a whole."""
    tokens, best = angles.shape[-1], _grid(angles, start)
    for at in range(2, tokens - 1) if tokens <= MOST_SPLIT and not best else ():
        here = (*_grid(angles[..., :at], start), *_grid(angles[..., at:], start + at))
        best = here if _told(here) > _told(best) else best
    return best


def _grid(angles: Tensor, start: int) -> tuple[Grid, ...]:
    """The one grid of tokens ``[heads, pairs, tokens]``; none where they are none, or do not move."""
    heads, pairs, tokens = angles.shape
    flat = angles.reshape(-1, tokens)
    if not bool((wrapped(flat - flat[:, :1]).abs() > STILL).any()):
        return ()
    rest, sizes = flat, list[int]()
    while inner := _period(rest):
        sizes.append(inner)
        rest = rest[:, ::inner]
    shape = (rest.shape[1], *reversed(sizes))
    lines = []
    for axis, size in enumerate(shape):
        stride = math.prod(shape[axis + 1 :])
        if (line := _line(flat[:, : size * stride : stride])) is None:
            return ()
        lines.append(line)
    if shape == (2,):  # of two tokens, anything is a line
        return ()
    steps = torch.stack([step for step, _ in lines], -1).view(heads, pairs, -1)
    return (Grid(start, shape, steps, tuple(at for _, at in lines), angles[..., 0]),)


def _period(flat: Tensor) -> int:
    """The length of the innermost axis of tokens ``[pairs, tokens]``, 0 where they have one axis only.

    The shortest rows of which each turns like the first one, and none of which goes on where the one before it ends.
    """
    tokens = flat.shape[1]
    for width in (n for n in range(2, tokens // 2 + 1) if tokens % n == 0):
        rows = flat.view(len(flat), -1, width)
        alike = wrapped(rows - rows[:, :, :1] - (rows[:, :1] - rows[:, :1, :1])).abs().max() <= CLOSE
        on = wrapped(rows[:, 1:, 0] - rows[:, :-1, -1] - (rows[:, :-1, 1] - rows[:, :-1, 0])).abs().amax(0) <= CLOSE
        if alike and not on.any():
            return width
    return 0


def _line(line: Tensor) -> tuple[Tensor, Tensor] | None:
    """Radians per mean step of each pair of tokens ``[pairs, tokens]`` in a row, and where these stand in such steps.

    A slow pair, which makes no whole turn, says where; all others must follow. None where none does.
    """
    steps = wrapped(line.diff())
    size = steps.abs().amax(1)
    even = torch.arange(line.shape[1], dtype=torch.float64)
    order = size.argsort()
    moving = order[size[order] > STILL].tolist()
    for slow in (steps[p] for p in moving[:MOST_TRIED]):
        if bool((slow * slow[0] > 0).all()):
            at = torch.cat((even[:1], slow.cumsum(0))) / slow.mean()
            at = even if _stands(at, even, line - line[:, :1], _steps(line, even)) else at
            values = _steps(line, at)
            if bool((wrapped(line - line[:, :1] - values[:, None] * at).abs() <= CLOSE).all()):
                return values, at
    return None if moving else (torch.zeros(len(line), dtype=torch.float64), even)


def _stands(at: Tensor, there: Tensor, angles: Tensor, values: Tensor) -> bool:
    """Whether tokens stand ``there`` but for rounding, in half precision too where ``angles`` grow so by ``values``."""
    apart = (at - there).abs() / there.abs().clamp(min=1)
    if bool((apart <= WHOLE).all()):
        return True
    return bool((apart <= CLOSE).all()) and bool((wrapped(angles - values[:, None] * there).abs() <= CLOSE).all())


def _steps(line: Tensor, at: Tensor) -> Tensor:
    """Radians per mean step of each pair; each further token says it more exactly."""
    values = wrapped(line[:, 1] - line[:, 0]) / at[1]
    for i in range(2, len(at)):
        rest = wrapped(line[:, i] - line[:, 0] - values * at[i])
        values = torch.where(rest.abs() < 0.1, values + rest / at[i], values)
    return values


def by_axes(angles: Tensor, found: Sequence[Grid]) -> tuple[Tensor, tuple[int, ...], tuple[Tensor, ...]] | None:
    """Frequencies ``[heads, pairs]``, the axis of each pair, and the coordinates of all tokens along each axis.

    A coordinate is counted so that the first pair of a ladder turns by 1 radian per unit, as rotary frequencies start;
    where there is no ladder, in mean steps of the grid. None where heads differ, or no coordinate turns pairs that move
    along the same axes.
    """
    if not found or not torch.equal(angles, angles[:1].expand_as(angles)):
        return None
    axis, values = torch.full(angles.shape[1:2], -1), torch.zeros(angles.shape[1], dtype=torch.float64)
    parts: list[tuple[Tensor, Tensor]] = []  # pairs of each axis, and radians per mean step of its grid
    for grid in sorted(found, key=lambda one: -len(one.shape)):  # text moves along all axes of a picture at once
        moves = grid.moves[0] & (axis < 0)[:, None]
        several = moves[moves.any(1)].unique(dim=0)  # blocks of tokens share an axis
        for along in sorted(several, key=lambda m: int(m.nonzero()[-1])):
            mine = (moves == along).all(1).nonzero().flatten()
            axis[mine] = len(parts)
            parts.append((mine, unwrapped(grid.steps[0, mine, int(along.nonzero()[-1])])))
            values[mine] = parts[-1][1]
    if bool((axis < 0).any()):
        return None
    whole_ladder, coordinates = values.clone(), list[Tensor]()
    shared = len(parts) > 1 and len(values) > 2 and _is_ladder(whole_ladder)  # by all axes
    for mine, steps in parts:
        ladder = whole_ladder if shared else steps
        slow, unit = int(steps.abs().argmin()), float(ladder[0].abs()) if _is_ladder(ladder) else 1.0
        at = angles[0, mine[slow]] / steps[slow] * unit
        whole, mine_turn = at.round(), angles[0, mine]
        at = whole if _stands(at, whole, mine_turn, _through(mine_turn, steps / unit, whole)) else at
        halves = (2 * at).round() / 2  # between two rows, and where a grid is stretched by two
        at = halves if bool(((at - halves).abs() <= WHOLE * at.abs().clamp(min=1)).all()) else at
        values[mine] = _through(mine_turn, steps / unit, at)
        coordinates.append(at)
    away = wrapped(angles[0] - values[:, None] * torch.stack(coordinates)[axis])
    if float(away.abs().max()) > CLOSE:
        return None
    firsts = [axis.tolist().index(a) for a in range(len(coordinates))]
    block = max(len(grid.shape) for grid in found)  # the axes of a picture keep their order, whichever pair is first
    order = sorted(range(len(firsts)), key=lambda a: min(firsts[:block]) if a < block else firsts[a])
    return values.expand(len(angles), -1), tuple(order.index(a) for a in axis), tuple(coordinates[a] for a in order)


def _is_ladder(steps: Tensor) -> bool:
    ratios = steps[1:] / steps[:-1]
    return len(ratios) < 2 or bool(((ratios / ratios[0] - 1).abs() < LEAST).all())


def _through(angles: Tensor, values: Tensor, at: Tensor) -> Tensor:
    """Frequencies ``[pairs]`` so that the farthest token turns as it does."""
    far = int(at.abs().argmax())
    return values + wrapped(angles[:, far] - values * at[far]) / at[far]


def wrapped(angles: Tensor) -> Tensor:
    """Radians from -pi to pi."""
    return torch.remainder(angles + math.pi, 2 * math.pi) - math.pi


def unwrapped(steps: Tensor) -> Tensor:
    """Steps of one axis with the whole turns that make them a ladder, from the slowest two on; else as they are.

    >>> fast = torch.tensor([5.0, 0.5, 0.05])
    >>> [round(x, 3) for x in unwrapped(wrapped(fast)).tolist()]
    [5.0, 0.5, 0.05]
    """
    for up in (steps.flip(0).tolist(), steps.tolist()) if len(steps) > 2 and steps.all() else ():
        if (found := _climbed(up)) is not None:
            return torch.tensor(found if up == steps.tolist() else found[::-1], dtype=steps.dtype)
    return steps


def _climbed(steps: list[float]) -> list[float] | None:
    """Steps from the slowest on, each with the whole turns that bring it to where the two before it point."""
    up = steps[:2]
    for step in steps[2:]:
        meant = up[-1] ** 2 / up[-2]
        up.append(step + 2 * math.pi * round((meant - step) / (2 * math.pi)))
        if abs(up[-1] - meant) > CLOSE * min(abs(meant), 2 * math.pi):
            return None
    return up if abs(up[-1]) >= abs(up[0]) else None
