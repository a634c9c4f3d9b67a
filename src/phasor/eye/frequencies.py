"""From angles to frequencies: along which coordinates each pair turns, and how far per step, to the bit if it is there.

The coordinates of the tokens are values of the tape: whatever the angles were computed from that has one number for
each token. The frequencies are, too, unless tables came with the model.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

import torch
from torch import Tensor

from .grid import by_axes, grids, wrapped
from .linear import KEEPS_NUMBERS
from .operator import Operator
from .tape import Tape, upstream

MOST = 1 << 16  # elements of a value that may hold coordinates or frequencies
TABLES = {"cos", "sin", "polar", "exp", "complex"}
MOST_AXES = 4
MOST_COLUMNS = 64
CLOSE = 3e-5  # radians: roundings of float32 tables at the first positions
ROUNDING = 2.0**-19  # of an angle: its float32 product and the tables' own roundings
SLOW = 0.01  # of an angle: slow pairs would follow any axis within roundings of fast ones
FARTHEST = 0.05  # radians: chance does not bring all tokens so near


@dataclass(frozen=True, eq=False)
class Frequencies:
    """How each pair of each head turns: by ``values [heads, pairs]`` radians per step of the coordinate of its axis.

    ``axis_of_pair``: index into ``coordinates``, each ``[tokens]``. ``exact``: the values stand on the tape, to the
    bit. ``before`` and ``after``: tokens at either end that pass.
    """

    values: Tensor
    axis_of_pair: tuple[int, ...]
    coordinates: tuple[Tensor, ...]
    exact: bool
    before: int = 0
    after: int = 0

    @property
    def alike(self) -> bool:
        """Whether all heads turn alike."""
        return bool((self.values == self.values[:1]).all())


class NotExplained(Exception):
    """No coordinates of the tape explain the angles."""


def frequencies(tape: Tape, seen: Operator) -> Frequencies:
    """Raises `NotExplained` where the angles do not follow from one coordinate for each pair."""
    angles = seen.angles
    tokens = angles.shape[-1]
    still = (angles.abs().amax((0, 1)) == 0).tolist()
    before = next((i for i, none in enumerate(still) if not none), tokens)
    after = next((i for i, none in enumerate(reversed(still)) if not none), tokens)
    constants = [i for o in seen.operations for i in o.inputs if i not in tape.data]
    known = [i for i in upstream(tape, constants) if i not in tape.data and tape.values[i].numel() <= MOST]
    numbers = _before_tables(tape, known, constants)
    found: Frequencies | None = None
    for first in range(min(before, 8) + 1):
        for last in range(min(after, 2) + 1):
            if first + last >= tokens:
                continue
            part = angles[..., first : tokens - last] if last else angles[..., first:]
            live = seen.scale[..., first : first + part.shape[-1]].abs().amax((0, 1)) > 0
            one = _explained(part, _columns(tape, numbers, part.shape[-1]), live)
            one = one or _explained(part, _repeated(tape, numbers, part.shape[-1]), live)
            if one is not None and (found is None or len(one[2]) < len(found.coordinates)):
                values, axis, coordinates = one
                found = Frequencies(values, axis, coordinates, False, first, last)
    exact = None if found is None else _exact(tape, known, found.values, found)
    if exact is None and (found is None or len(found.coordinates) > 1):
        on_grids = _on_grids(tape, seen)
        if on_grids is not None and (found is None or _whole(on_grids.coordinates)):
            found = on_grids
            exact = _exact(tape, known, found.values, found)
    if found is None:
        raise NotExplained("its angles are no multiples of any number that the tokens have in the model's code")
    if exact is None and len(found.coordinates) == 1:  # in wide steps the angles wrap, and the steps are not to be seen
        exact = _by_other_count(tape, known, angles, seen, found)
    return found if exact is None else exact


def _on_grids(tape: Tape, seen: Operator) -> Frequencies | None:
    """Where no number of the tape says where tokens stand: along the axes of the grids that the angles show.

    A line alone is no grid: tokens in any other order would pass for one that counts otherwise.
    """
    found = grids(tape, seen)
    one = by_axes(seen.angles, found)
    if one is None or len(one[2]) < 2:
        return None
    values, axis, coordinates = one
    moving = torch.stack(coordinates).any(0).nonzero().flatten().tolist()
    first, last = min(moving[0], found[0].start), max(moving[-1] + 1, found[-1].stop)
    after = seen.angles.shape[-1] - last
    return Frequencies(values, axis, tuple(c[first:last] for c in coordinates), False, first, after)


def _whole(coordinates: tuple[Tensor, ...]) -> bool:
    """Whether tokens stand at whole numbers, which a grid shows only where its unit is the model's own."""
    return all(bool(((c - c.round()).abs() < CLOSE).all()) for c in coordinates)


def _by_other_count(
    tape: Tape, known: list[int], angles: Tensor, seen: Operator, found: Frequencies
) -> Frequencies | None:
    """The first count in wide whole steps that explains the angles by frequencies that stand on the tape, too."""
    tokens = slice(found.before, angles.shape[-1] - found.after)
    live = seen.scale[..., tokens].amax((0, 1)) > 0
    for column in islice(_columns(tape, known, len(live)), 1, MOST_COLUMNS):
        wide = _even_gap(column) > 1 and bool((column == column.round()).all())
        one = _explained(angles[..., tokens], iter([column]), live) if wide else None
        if one is not None:
            exact = _exact(tape, known, one[0], replace(found, values=one[0], axis_of_pair=one[1], coordinates=one[2]))
            if exact is not None:
                return exact
    return None


def _before_tables(tape: Tape, known: list[int], factors: list[int]) -> list[int]:
    """Those values that no cosine or sine has gone into: where tokens stand is said before.

    What the data is multiplied by, and what only moved becomes that, is one: a table that came with the call.
    """
    tables, pending = set[int](), [i for i in factors if tape.is_float(i)]
    while pending:
        tables.add(number := pending.pop())
        maker = tape.maker(number)
        if maker is not None and maker.name in KEEPS_NUMBERS:
            pending += [i for i in maker.inputs if tape.is_float(i) and i not in tables]
    for number in sorted(known):
        maker = tape.maker(number)
        if maker is not None and (maker.name in TABLES or tables.intersection(maker.inputs)):
            tables.add(number)
    return [number for number in known if number not in tables]


def counts_on(found: Frequencies, positions: Tensor) -> bool:
    """Whether the coordinates grow with these positions in even steps; of several axes nothing is said against it.

    A table that ends, or is read modulo its length, or positions that the model ignores, do not.
    """
    coordinate, given = found.coordinates[0], positions[found.before : len(positions) - found.after].double()
    if len(found.coordinates) > 1 or len(coordinate) != len(given) or len(given) < 3:
        return True
    step = (coordinate[1] - coordinate[0]) / (given[1] - given[0])
    return bool(torch.allclose(coordinate - coordinate[0], step * (given - given[0]), rtol=1e-5, atol=1e-5))


def _columns(tape: Tape, known: list[int], tokens: int) -> Iterator[Tensor]:
    """One number for each token: its place, then in every way in which the tape has them; whole numbers first."""
    seen = {tuple(float(i) for i in range(tokens))}
    yield torch.arange(tokens, dtype=torch.float64)
    for number in sorted(known, key=lambda i: (tape.values[i].is_floating_point(), i)):
        value = tape.values[number]
        if value.dtype == torch.bool or value.is_complex() or value.is_meta or not value.numel():
            continue
        for axis in range(value.ndim):
            if value.shape[axis] != tokens:
                continue
            for column in value.movedim(axis, -1).reshape(-1, tokens)[:64].double():
                key = tuple(column.tolist())
                if key not in seen and len(set(key)) > 1 and all(math.isfinite(x) for x in key):
                    seen.add(key)
                    yield column


def _repeated(tape: Tape, known: list[int], tokens: int) -> Iterator[Tensor]:
    """Coordinates of fewer tokens, each for several rows: heads that were folded into the axis of the tokens."""
    for times in range(2, tokens // 2 + 1):
        if tokens % times == 0:
            for column in _columns(tape, known, tokens // times):
                yield column.repeat_interleave(times)
                yield column.repeat(times)


def _explained(
    angles: Tensor, columns: Iterator[Tensor], live: Tensor
) -> tuple[Tensor, tuple[int, ...], tuple[Tensor, ...]] | None:
    """Frequencies, axes and coordinates with as few coordinates as will do; None where some pair has none.

    ``live``: the tokens that are not padding.
    """
    heads, pairs = angles.shape[:2]
    if bool((angles == angles[:1]).all()):
        angles = angles[:1]
    fits, tried = list[tuple[Tensor, Tensor]](), list[Tensor]()
    directions = set[tuple[float, ...]]()
    for column in columns:
        direction = tuple((column / column.abs().max()).round(decimals=6).tolist())
        if direction in directions or not _agrees(angles[..., live], column[live]):
            continue
        directions.add(direction)
        tried.append(column)
        values = _slopes(angles[..., live], column[live])
        away = wrapped(angles - values[..., None] * column)[..., live].abs().amax((0, 2))
        size = values.abs().amax(0) * column.abs().max()
        allowed = (SLOW * size).clamp(max=CLOSE) + ROUNDING * size
        fits.append((values, away <= allowed.clamp(max=FARTHEST)))
        if fits[-1][1].all():
            return values.expand(heads, -1), (0,) * pairs, (column,)
    left = torch.ones(pairs, dtype=torch.bool)
    chosen: list[int] = []
    while left.any():
        best = max(range(len(fits)), key=lambda i: int((fits[i][1] & left).sum()), default=None)
        if best is None or not (fits[best][1] & left).any():
            return None
        chosen.append(best)
        left &= ~fits[best][1]
        if len(chosen) > MOST_AXES:
            return None
    chosen.sort()
    axis = tuple(next(n for n, i in enumerate(chosen) if fits[i][1][p]) for p in range(pairs))
    values = torch.stack([fits[chosen[a]][0][:, p] for p, a in enumerate(axis)], 1)
    return values.expand(heads, -1), axis, tuple(tried[i] for i in chosen)


def _agrees(angles: Tensor, column: Tensor) -> bool:
    """Whether some pair turns tokens with one coordinate alike."""
    order = column.argsort()
    same = column[order].diff() == 0
    apart = wrapped(angles[..., order].diff())[..., same].abs()
    return not bool(same.any()) or bool((apart.amax((0, 2)) <= FARTHEST).any())


def _slopes(angles: Tensor, column: Tensor) -> Tensor:
    """Radians per step of the two tokens with the nearest coordinates, refined by those that are farther apart."""
    order = column.argsort()
    steps = column[order].diff()
    if not (steps > 0).any():
        return torch.full(angles.shape[:-1], math.inf, dtype=torch.float64)
    steps[steps <= 0] = math.inf
    at = int(steps.argmin())
    a, b = int(order[at]), int(order[at + 1])
    slope = wrapped(angles[..., b] - angles[..., a]) / (column[b] - column[a])
    zero = (column == 0).nonzero().flatten()
    start = int(zero[0]) if len(zero) else a
    apart = torch.cat((torch.ones(1, dtype=torch.bool), steps != math.inf))  # one token for each coordinate
    each = order[apart]
    for other in each[(column[each] - column[start]).abs().argsort()].tolist():
        far = column[other] - column[start]
        if far != 0:
            rest = wrapped(angles[..., other] - angles[..., start] - slope * far)
            slope = torch.where(rest.abs() < 0.1, slope + rest / far, slope)
    if not len(zero):  # where no token stands at 0, what does would not turn
        far = column.abs().argmax()
        rest = wrapped(angles[..., far] - slope * column[far])
        slope = torch.where(rest.abs() < 0.1, slope + rest / column[far], slope)
    return slope


def _exact(tape: Tape, known: list[int], values: Tensor, found: Frequencies) -> Frequencies | None:
    """The frequencies as the tape has them, if one value of it has each of them to all digits that were measured."""
    size, sign = values.abs().contiguous(), values.sign()
    reach = torch.tensor([float(c.abs().max()) for c in found.coordinates])[list(found.axis_of_pair)]
    away = 4e-7 * size + CLOSE / 10 / reach
    for number in sorted(known):
        value = tape.values[number]
        if not value.is_floating_point() or value.is_meta or value.numel() < values.shape[1]:
            continue
        pool = value.detach().double().flatten().abs().unique()
        if len(pool) > values.numel() + 1:
            continue  # a table, in which one finds numbers near to any
        at = torch.searchsorted(pool, size.contiguous()).clamp(max=len(pool) - 1)
        below = (at - 1).clamp(min=0)
        near = torch.where((pool[below] - size).abs() < (pool[at] - size).abs(), pool[below], pool[at])
        if ((near - size).abs() <= away).all():
            return replace(found, values=near * sign, exact=True)
        if found.alike and (turned := _but_for_turns(values[0], pool, found, away[0])) is not None:
            return replace(found, values=turned.expand_as(values), exact=True)
    return None


def _but_for_turns(values: Tensor, pool: Tensor, found: Frequencies, away: Tensor) -> Tensor | None:
    """The numbers of ``pool`` that turn the tokens as ``values`` do: whole turns between tokens are not to be seen."""
    gaps = [_even_gap(c) for c in found.coordinates]
    if not all(gaps):
        return None
    gap = torch.tensor(gaps, dtype=torch.float64)[list(found.axis_of_pair), None]
    either = torch.cat((pool, -pool))
    apart = (wrapped((either - values[:, None]) * gap) / gap).abs()
    best = apart.argmin(1)
    return either[best] if bool((apart.amin(1) <= away).all()) else None


def _even_gap(coordinate: Tensor) -> float:
    """The smallest gap, if all others are whole multiples of it; else 0."""
    gaps = coordinate.sort().values.diff()
    gap = float(gaps[gaps > 0].min()) if bool((gaps > 0).any()) else 0.0
    return gap if gap and bool((gaps / gap - (gaps / gap).round()).abs().max() < 1e-5) else 0.0
