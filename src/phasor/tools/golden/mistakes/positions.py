"""Positions that are not those of the tokens."""

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ..case import RotationCase, Row, with_fields, with_spec

TABLES = tuple(2**n for n in range(6, 21))


def of_positions(case: RotationCase) -> Iterator[Row]:
    at = case.positions
    for by in (1, -1, 2, -2):
        counted = " (counted from 1 instead of 0?)" if by == 1 else ""
        yield _row(at + by, f"{_shifted(by)}{counted}")
    yield _row(2 * at, "angles are doubled: rotated twice, or positions counted twice")
    if case.spec.position_scale != 1:
        text = f"positions were not multiplied by position_scale = {case.spec.position_scale:.9g}"
        yield "positions", text, with_spec(position_scale=1.0)
    if case.spec.coordinates == "real":
        return
    text = "positions are those of the tokens in the tensor, 0, 1, 2, … (an implicit arange), and not the given ones"
    yield _row(_counted(at), text)
    for dtype in (torch.int16, torch.uint8, torch.int8, torch.int32):
        wrapped = at.to(dtype).to(torch.int64)
        if bool((wrapped != at).any()):
            text = f"positions overflow: {str(dtype)[6:]} ends at {torch.iinfo(dtype).max:,}; keep them as int64"
            yield _row(wrapped, text)
    yield _row(at.flip(-1), "positions stand in reverse order: the first token has that of the last")
    for by, side in ((1, "before"), (-1, "after")):
        yield _row(at.roll(by, -1), f"each token has the position of the one {side} it")


def of_seen(case: RotationCase, where: Tensor) -> Iterator[Row]:
    """What went wrong with positions, from those at which the tokens were rotated, ``[A, S]`` (nan: not readable)."""
    expected = case.positions.double()
    known = ~where.isnan()
    moved = known & (where != expected)
    axes = moved.any(-1).nonzero().flatten().tolist()
    for axis in axes:
        for text, changed in _of_row(expected[axis], where[axis], known[axis]):
            yield _row(changed(expected), text)
            if len(expected) > 1:
                alone = expected.clone()
                alone[axis] = changed(expected[axis])
                yield _row(alone, f"{text}, on axis {axis} alone")
    far = expected[~known]  # where the pairs rotate too fast to tell: tables of the usual sizes
    for rows in TABLES:
        if (far >= rows).any():
            yield from (_row(changed(expected), text) for text, changed in _table(rows))
    if axes:
        token = int(moved[axes[0]].nonzero()[0])
        whose = f"that of token {token}" + (f" on axis {axes[0]}" if len(expected) > 1 else "")
        there, here = where[axes[0], token], expected[axes[0], token]
        text = f"positions are others: {whose} is {there:.0f}, and must be {here:.0f}"
        last = torch.where(known, torch.arange(known.shape[-1]), 0).cummax(-1).values  # shifted as the one before it
        shift = (where - expected).gather(-1, last).nan_to_num()
        yield from (_row(torch.where(known, where, other), text) for other in (expected, expected + shift))


_Change = Callable[[Tensor], Tensor]  # of positions [..., S]


def _row(positions: Tensor, text: str) -> Row:
    whole = positions if not positions.is_floating_point() else positions.round().to(torch.int64)
    return "positions", text, with_fields(positions=whole)


def _of_row(expected: Tensor, where: Tensor, known: Tensor) -> Iterator[tuple[str, _Change]]:
    """What may have been done to all positions, as one axis of them shows it."""
    shift = (where - expected)[known]
    by, last = float(shift.median()), float(where[known][shift != 0].max())
    if by:
        yield _shifted(by), lambda x: x + by
    tables = _table(int(last) + 1) if last >= 0 else []
    length = math.gcd(*(-shift[shift < 0]).to(torch.int64).tolist())
    yield from (*tables[:1], *(_table(length)[1:] if length > 1 else ()))
    token = int(((where != expected) & known).nonzero()[0])
    place = f"at token {token}, whose position is {expected[token]:.0f}"
    ways: tuple[tuple[str, _Change], ...] = (
        ("start again from 0", lambda x: x - x[..., :1]),
        ("are counted from 0 again", _counted),
    )
    for how, rest in ways:

        def changed(x: Tensor, rest: _Change = rest) -> Tensor:
            return torch.cat((x[..., :token], rest(x[..., token:])), -1)

        yield f"positions {how} {place}", changed


def _counted(x: Tensor) -> Tensor:
    return torch.arange(x.shape[-1]).expand(x.shape)


def _shifted(by: float) -> str:
    return f"positions are too {'high' if by > 0 else 'low'} by {abs(by):.0f}"


def _table(rows: int) -> list[tuple[str, _Change]]:
    """One of so many rows: what lies beyond it takes the last one, or begins again."""
    return [
        (f"positions beyond {rows - 1} are clamped to it (a table of {rows} rows?)", lambda x: x.clamp(max=rows - 1)),
        (f"positions start again from 0 every {rows:,}", lambda x: x.remainder(rows)),
    ]
