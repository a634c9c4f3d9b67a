"""Positions that are not those of the tokens."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ....scaling import Linear
from ..case import Case
from .mistake import Mistake, with_spec


def of_positions(case: Case) -> Iterator[Mistake]:
    for by in (1, -1, 2, -2):
        way = "high" if by > 0 else "low"
        yield Mistake(
            "positions",
            f"positions are too {way} by {abs(by)}" + (" (counted from 1 instead of 0?)" if by == 1 else ""),
            lambda case, by=by: case.replace(positions=case.positions + by),  # type: ignore[misc]
        )
    if not isinstance(case.spec.scaling, Linear):  # there it is more likely to be half the factor
        says = "angles are doubled: rotated twice, or positions counted twice"
        yield Mistake("positions", says, lambda case: case.replace(positions=2 * case.positions))
    if case.spec.position_scale != 1:
        says = f"positions were not multiplied by position_scale = {case.spec.position_scale:.9g}"
        yield Mistake("positions", says, with_spec(position_scale=1.0))
    if case.spec.coordinates == "integer":
        count = case.positions.shape[-1]
        index = torch.arange(count).expand(case.positions.shape)
        says = (
            "positions are those of the tokens in the tensor, 0, 1, 2, … (an implicit arange), and not the given ones"
        )
        yield Mistake("positions", says, lambda case: case.replace(positions=index), alone=True)


def of_seen(case: Case, where: Tensor) -> Iterator[Mistake]:
    """What went wrong with positions, from those at which the tokens were turned (nan: not readable)."""
    given = case.positions[0].double()
    known = ~where.isnan()
    moved = known & (where != given)
    if not moved.any():
        return
    yield from _offset(given, where, known)
    yield from _cut(given, where, known, moved)
    yield from _restarted(given, where, known)
    token = int(moved.nonzero()[0])
    says = f"positions are others: that of token {token} is {where[token]:.0f}, and must be {given[token]:.0f}"
    yield _at(torch.where(known, where, given), says)


def _at(positions: Tensor, says: str) -> Mistake:
    rows = positions.round().to(torch.int64).unsqueeze(0)
    return Mistake("positions", says, lambda case: case.replace(positions=rows))


def _offset(given: Tensor, where: Tensor, known: Tensor) -> Iterator[Mistake]:
    by = float((where - given)[known].median())
    if by and abs(by) > 2:  # smaller ones are known without reading
        says = f"positions are too {'high' if by > 0 else 'low'} by {abs(by):.0f}"
        yield _at(given + by, says)


def _cut(given: Tensor, where: Tensor, known: Tensor, moved: Tensor) -> Iterator[Mistake]:
    last = float(where[moved].max())
    if bool((torch.minimum(given, torch.tensor(last))[known] == where[known]).all()) and last >= 0:
        says = f"positions beyond {last:.0f} are clamped to it (a table of {last + 1:.0f} rows?)"
        yield _at(given.clamp(max=last), says)
    lengths = (given - where)[moved & (given > where)].to(torch.int64).tolist()
    length = math.gcd(*lengths) if lengths else 0
    if length > 1 and bool((given.remainder(length)[known] == where[known]).all()):
        yield _at(given.remainder(length), f"positions start again from 0 every {length:,}")


def _restarted(given: Tensor, where: Tensor, known: Tensor) -> Iterator[Mistake]:
    """From some token on: counted from 0 again, by their distances or by their places in the tensor."""
    index = torch.arange(len(given), dtype=torch.float64)
    for token in range(1, len(given)):
        for rest, how in ((given - given[token], "start again from 0"), (index - token, "are counted from 0 again")):
            restarted = torch.where(index >= token, rest, given)
            if bool((restarted[known] == where[known]).all()):
                yield _at(restarted, f"positions {how} at token {token}, whose position is {given[token]:.0f}")
                return
