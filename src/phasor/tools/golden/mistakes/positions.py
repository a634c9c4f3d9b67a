"""Positions that are not those of the tokens."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..case import Mistake, RotationCase, with_spec

TABLES = tuple(2**n for n in range(6, 21))


def of_positions(case: RotationCase) -> Iterator[Mistake]:
    for by in (1, -1, 2, -2):
        way = "high" if by > 0 else "low"
        yield Mistake(
            "positions",
            f"positions are too {way} by {abs(by)}" + (" (counted from 1 instead of 0?)" if by == 1 else ""),
            lambda case, by=by: case.replace(positions=case.positions + by),  # type: ignore[misc]
        )
    text = "angles are doubled: rotated twice, or positions counted twice"
    yield Mistake("positions", text, lambda case: case.replace(positions=2 * case.positions))
    if case.spec.position_scale != 1:
        text = f"positions were not multiplied by position_scale = {case.spec.position_scale:.9g}"
        yield Mistake("positions", text, with_spec(position_scale=1.0))
    if case.spec.coordinates == "integer":
        count = case.positions.shape[-1]
        index = torch.arange(count).expand(case.positions.shape)
        text = (
            "positions are those of the tokens in the tensor, 0, 1, 2, … (an implicit arange), and not the given ones"
        )
        yield Mistake("positions", text, lambda case: case.replace(positions=index))
        yield from _overflown(case.positions)
        yield from _of_other_tokens(case.positions)


def _overflown(positions: Tensor) -> Iterator[Mistake]:
    for dtype in (torch.int16, torch.uint8, torch.int8, torch.int32):
        wrapped = positions.to(dtype).to(torch.int64)
        if bool((wrapped != positions).any()):
            text = f"positions overflow: {str(dtype)[6:]} ends at {torch.iinfo(dtype).max:,}; keep them as int64"
            yield _at(wrapped, text)


def _of_other_tokens(positions: Tensor) -> Iterator[Mistake]:
    yield _at(positions.flip(-1), "positions stand in reverse order: the first token has that of the last")
    for by in (1, -1):
        side = "before" if by > 0 else "after"
        yield _at(positions.roll(by, -1), f"each token has the position of the one {side} it")


def of_seen(case: RotationCase, where: Tensor) -> Iterator[Mistake]:
    """What went wrong with positions, from those at which the tokens were rotated, ``[A, S]`` (nan: not readable)."""
    expected = case.positions.double()
    known = ~where.isnan()
    moved = known & (where != expected)
    axes = moved.any(-1).nonzero().flatten().tolist()
    for axis in axes:
        for text, changed in _of_row(expected[axis], where[axis], known[axis], moved[axis]):
            yield _at(changed(expected), text)
            if len(expected) > 1:
                yield _at(_one_row(expected, axis, changed), f"{text}, on axis {axis} alone")
    far = expected[~known]  # where the pairs rotate too fast to tell: tables of the usual sizes
    for rows in TABLES:
        if (far >= rows).any():
            yield _at(expected.clamp(max=rows - 1), _clamped(rows - 1))
            yield _at(expected.remainder(rows), _wrapped(rows))
    if axes:
        axis = axes[0]
        token = int(moved[axis].nonzero()[0])
        whose = f"that of token {token}" + (f" on axis {axis}" if len(expected) > 1 else "")
        text = f"positions are others: {whose} is {where[axis, token]:.0f}, and must be {expected[axis, token]:.0f}"
        yield _at(torch.where(known, where, expected), text)
        yield _at(torch.where(known, where, expected + _last_known(where - expected, known)), text)


def _last_known(shift: Tensor, known: Tensor) -> Tensor:
    """``[A, S]``: that of each token, or of the last one before it that is known."""
    at = torch.where(known, torch.arange(known.shape[-1]), 0).cummax(-1).values
    return shift.gather(-1, at).nan_to_num()


_Change = Callable[[Tensor], Tensor]  # of positions [..., S]


def _at(positions: Tensor, text: str) -> Mistake:
    rows = positions.round().to(torch.int64)
    return Mistake("positions", text, lambda case: case.replace(positions=rows))


def _one_row(expected: Tensor, axis: int, changed: _Change) -> Tensor:
    rows = expected.clone()
    rows[axis] = changed(expected[axis])
    return rows


def _of_row(expected: Tensor, where: Tensor, known: Tensor, moved: Tensor) -> Iterator[tuple[str, _Change]]:
    """What may have been done to all positions, as one axis of them shows it."""
    by = float((where - expected)[known].median())
    if by:
        yield f"positions are too {'high' if by > 0 else 'low'} by {abs(by):.0f}", lambda x: x + by
    last = float(where[moved].max())
    if bool((torch.minimum(expected, torch.tensor(last))[known] == where[known]).all()) and last >= 0:
        yield _clamped(last), lambda x: x.clamp(max=last)
    lengths = (expected - where)[moved & (expected > where)].to(torch.int64).tolist()
    length = math.gcd(*lengths) if lengths else 0
    if length > 1 and bool((expected.remainder(length)[known] == where[known]).all()):
        yield _wrapped(length), lambda x: x.remainder(length)
    for token in range(1, len(expected)):
        for how, changed in (("start again from 0", _restart(token)), ("are counted from 0 again", _count(token))):
            if bool((changed(expected)[known] == where[known]).all()):
                yield f"positions {how} at token {token}, whose position is {expected[token]:.0f}", changed
                return


def _clamped(last: float) -> str:
    return f"positions beyond {last:.0f} are clamped to it (a table of {last + 1:.0f} rows?)"


def _wrapped(length: int) -> str:
    return f"positions start again from 0 every {length:,}"


def _restart(token: int) -> _Change:
    """From this token on by their distances from it."""
    return lambda x: torch.cat((x[..., :token], x[..., token:] - x[..., token, None]), -1)


def _count(token: int) -> _Change:
    """From this token on by their places in the tensor."""
    return lambda x: torch.cat((x[..., :token], torch.arange(x.shape[-1] - token).expand_as(x[..., token:])), -1)
