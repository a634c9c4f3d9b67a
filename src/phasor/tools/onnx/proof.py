"""A rotation of a graph and the operator in its place, run on the same heads at the same positions."""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from ...eye.stretch import CannotSay
from ...support.findings import Difference
from .graph import Graph, Unread
from .inputs import PADDED, Sizes
from .rewrite import Site
from .rotations import AT_ONCE, Rerun, Rotation, every_position, tables_read

LONG = 2**26  # elements of the largest value of a long call
STEPS = 4  # of the number format, by which products of heads and tables may differ


def proved_equal(before: Graph, after: Graph, site: Site, batch: int, every: bool) -> Difference:
    """How far a rotation is from what it was, at ``every`` position or at many; raises `CannotSay` if too far."""
    of, made, largest = site.rotation, torch.Generator().manual_seed(0), 0.0
    if of.positions and every:
        _check_length(before, of, len(site.cos), batch)
    runs: list[Rerun] = []
    for rows in _positions(before, of, len(site.cos), batch, every):
        runs = runs or [Rerun(graph, of, rows.shape[-1], batch) for graph in (before, after)]
        x = torch.randn(runs[0].shape, generator=made).to(of.dtype)
        at = runs[0].stands(x) if of.positions else None
        if isinstance(at, Tensor) and bool((at < 0).any()):
            raise CannotSay("with padding, some of its tokens stand at positions below 0")
        was, now = (run(x, rows) for run in runs)
        for value in (was, now):
            if isinstance(value, Unread):
                raise CannotSay(value.reason)
        if was.shape != now.shape or was.dtype != now.dtype:
            raise CannotSay("another shape or type comes out")
        difference = (was.double() - now.double()).abs()
        if not bool((difference <= _allowed(of, x, rows[: runs[0].rows])).all()):
            raise CannotSay(f"its values differ by {float(difference.max()):.2g}")
        largest = max(largest, float(difference.max()))
    return Difference(size=largest)


def _check_length(graph: Graph, of: Rotation, length: int, batch: int) -> None:
    """Raises `CannotSay` where the first tokens of a long call turn otherwise than those of a short one."""
    wanted = tables_read(graph, of)
    sizes = Sizes(graph, AT_ONCE, batch)
    wide = max(2 * batch * of.layout.head_dim, *(math.prod(sizes.of(v)) // sizes.tokens for v in graph.entries))
    counts = sizes.tokens, max(sizes.tokens, min(length, LONG // wide))
    short, long = (
        Rerun(graph, of, n, batch).tables(wanted, torch.arange(n).clamp(max=length - 1).expand(batch, -1))
        for n in counts
    )
    for name, value in short.items():
        if not isinstance(value, Tensor) or not value.is_floating_point():
            continue
        other = long[name]
        if isinstance(other, Unread):
            raise CannotSay(other.reason)
        for axis, size in enumerate(value.shape):
            other = other.narrow(axis, 0, size)
        if not torch.allclose(other, value, rtol=0, atol=float(STEPS * torch.finfo(value.dtype).eps * AT_ONCE)):
            raise CannotSay(f"{name!r} depends on how many tokens there are")


def _positions(graph: Graph, of: Rotation, length: int, batch: int, every: bool) -> Iterator[Tensor]:
    """``[batch, tokens]``: near, far and between, the second sequence padded and backwards; then all, if wanted."""
    if of.positions:
        count = Sizes(graph, AT_ONCE, batch).tokens
        near = torch.arange(count // 3)
        between = torch.linspace(0, length - 1, count - 2 * len(near)).long()
        row = torch.cat((near, between, length - 1 - near)).clamp(0, length - 1)
        back = row.flip(0)
        back[:PADDED] = 0
        yield torch.stack((row, back))[:batch]
    if every or not of.positions:
        yield from every_position(graph, of, length, batch)


def _allowed(of: Rotation, x: Tensor, rows: Tensor) -> Tensor:
    """By how much each value may differ: by roundings of its angle, where the graph forms one, of tables, products."""
    angle, table, product = (torch.finfo(kind).eps for kind in (of.angles_in, of.tables_in, of.dtype))
    inv_freq = torch.tensor(of.inv_freq or (0.0,) * of.layout.pairs, dtype=torch.float64)
    shape = [1] * x.ndim
    shape[0], shape[of.tokens] = rows.shape
    angles = (rows[..., None] * inv_freq).abs().reshape(*shape[:-1], -1)
    members = of.layout.split(x.double().abs())
    allowed = of.factor * sum(members) * (STEPS * max(table, product) + angle * angles)
    return of.layout.within(torch.zeros_like(x, dtype=torch.float64), of.layout.written().join(allowed, allowed))
