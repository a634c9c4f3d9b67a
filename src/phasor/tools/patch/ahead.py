"""Tables of a decoded token, out of those that were formed for some tokens ahead.

A decoder asks for one position after the other. Cos and sin of one cost nearly as much as those of sixteen: the time is
that of the operations, not of the values. So the second position in a row brings those after it. Every value is formed
by itself, so the bits are those of a row that is formed alone.
"""

from typing import Any, NamedTuple

import torch
from torch import Size, Tensor

from ...support.tracing import watched
from .tables import Tables

AHEAD = 16  # tokens


class Rows(NamedTuple):
    """What was formed last: cos and sin from position ``start`` on, or none where one position came alone."""

    dtype: torch.dtype
    shape: Size
    start: int
    next: int
    cos: Tensor | None
    sin: Tensor | None


class TablesAhead:
    """`Tables.at` for a module that may be asked for one position after the other, with the same results.

    They are copies: what is written into them stays out of the rows that are kept.
    """

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.rows: Rows | None = None  # replaced as a whole, so that threads see one or the other
        self.simple = (
            tables.form != "complex"
            and tables.spec.axes.count == 1
            and tables.spec.coordinates == "integer"
            and not tables.spec.learned
            and not tables.spec.length_dependent
        )

    def at(self, x: Tensor, positions: Tensor) -> Any:
        """What `Tables.at` gives; for `simple` tables."""
        if torch.compiler.is_compiling() or not _is_one(x, positions) or watched():
            return self.tables.at(x, positions)
        now, rows = int(positions), self.rows
        if rows is None or rows.dtype != x.dtype or rows.shape != positions.shape or not rows.start <= now <= rows.next:
            self.rows = Rows(x.dtype, positions.shape, now, now + 1, None, None)
            return self.tables.at(x, positions)
        if now == rows.next:
            rows = self.rows = self._formed(x, positions, now)
        if rows.cos is None or rows.sin is None:  # the position that came alone, once more
            return self.tables.at(x, positions)
        return tuple(
            table.narrow(-2, now - rows.start, 1).clone(memory_format=torch.contiguous_format)
            for table in (rows.cos, rows.sin)
        )

    def _formed(self, x: Tensor, positions: Tensor, now: int) -> Rows:
        along = positions + torch.arange(AHEAD, device="cpu")  # wraps, as phases do
        cos, sin = self.tables.at(x, along)
        return Rows(x.dtype, positions.shape, now, now + AHEAD, cos, sin)


def _is_one(x: Tensor, positions: Any) -> bool:
    """Whether this is one integer position, on a CPU."""
    return (
        type(positions) is Tensor
        and positions.dtype == torch.int64
        and positions.is_cpu
        and x.is_cpu
        and positions.ndim > 0
        and positions.numel() == 1
    )
