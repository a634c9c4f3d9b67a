"""Rotations of a graph of torch.fx, found by what they do: between which nodes, and by which tables of the graph.

A stretch that the eye calls linear is a rotation of given tables if it gives the bits of one. So heads of one channel
each show which channels become which, heads of first members show cos and sin, and the nodes with these numbers are
the tables. Then it is compared on other heads, by the tables of other inputs, too.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, fx

from ...eye.layout import ways
from ...eye.linear import Linearity
from ...eye.stretch import CannotSay, ends_of
from ...rotary.layout import Layout
from ...support.findings import ROUNDINGS
from .graph import Graph, is_float, memory, read_by, shown

ROTATE = torch.ops.phasor.rotate.default
# By the number of axes but channels, and those of them that tables have.
FORMATS: dict[int, dict[tuple[int, ...], str]] = {
    3: {(2,): "bhsd", (0, 2): "bhsd", (1,): "bshd", (0, 1): "bshd", (0,): "sbhd"},
    2: {(1,): "bhsd", (0,): "thd"},
}
Turned = Callable[[Tensor], Tensor]
Values = dict[fx.Node, Any]


@dataclass(frozen=True)
class Table:
    """Columns ``first``, ``first + step``, … of a node, one for each pair; of complex numbers ``part`` 0 or 1."""

    node: fx.Node
    first: int
    step: int
    part: int | None

    def of(self, value: Tensor, pairs: int) -> Tensor:
        """As it multiplies."""
        value = value if self.part is None else torch.view_as_real(value)[..., self.part]
        return value[..., self.first : self.first + self.step * (pairs - 1) + 1 : self.step]


@dataclass(frozen=True)
class Site:
    """``source`` becomes ``target``. ``backwards``: by minus the sines; ``difference``: the largest that was seen.

    ``axes``: the order of the heads' axes in memory, in which they have the ``tensor_format``; ``kept``: those that the
    operator's tables have, too.
    """

    source: fx.Node
    target: fx.Node
    layout: Layout
    cos: Table
    sin: Table
    backwards: bool
    tensor_format: str = ""
    axes: tuple[int, ...] = ()
    kept: tuple[int, ...] = ()
    between: tuple[fx.Node, ...] = ()
    difference: float = 0.0

    @property
    def about(self) -> list[int]:
        """The layout as the operator takes it: that of the transposed rotation, if it goes backwards."""
        at = self.layout.transposed() if self.backwards else self.layout
        flags = int(at.trailing), int(at.interleaved), at.blocks, int(at.permuted), 0
        return [at.head_dim, at.rotary_dim, *flags]

    def dropped(self, table: Table) -> list[int]:
        """The axes of a table that the operator does not take, the last first."""
        ndim = shown(table.node).ndim
        more = shown(self.source).ndim - ndim
        return [axis for axis in reversed(range(ndim - 1)) if axis + more not in self.kept]

    def taken(self, table: Table, values: Mapping[fx.Node, Any]) -> Tensor:
        """A table as the operator takes it."""
        value = table.of(values[table.node], self.layout.pairs)
        for axis in self.dropped(table):
            value = value.squeeze(axis)
        return value.contiguous()

    @property
    def back(self) -> list[int]:
        """From the order in memory to that of the axes."""
        return [self.axes.index(axis) for axis in range(len(self.axes))]

    def rotated(self, x: Tensor, values: Mapping[fx.Node, Any]) -> Tensor:
        """What the operator makes of heads."""
        tables = self.taken(self.cos, values), self.taken(self.sin, values)
        y: Tensor = ROTATE(x.permute(self.axes), *tables, self.about, self.tensor_format, self.backwards)
        return y.permute(self.back)

    def __str__(self) -> str:
        turning, width = self.layout.rotary_dim, self.layout.head_dim
        channels = f"all {width}" if turning == width else f"{turning} of {width}"
        return f"{self.source.name!r} to {self.target.name!r}, {channels} channels, {self.layout.describe()}"


class Search:
    """Looks for the rotations of one graph, one end after the other."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._linear: dict[Any, bool] = {}

    def before(self, end: fx.Node) -> list[Site]:
        """All that stand between ``end`` and what it is projected from; `CannotSay` for one that has no operator."""
        if (device := shown(end).device).type != "cpu":
            raise CannotSay(f"it is on {device}, and the operator runs on a CPU")
        nodes, data = self.graph.before(end)
        values, tape = self.graph.recorded(nodes, data)
        others = self.graph.made(nodes, data, seed=1)
        with torch.enable_grad():  # so that what is trained is known by its gradient
            self.graph.run(nodes, others)
        named: dict[int, fx.Node] = {}
        for node, value in values.items():
            if isinstance(value, Tensor) and id(value) in tape.ids and node.op != "get_attr":
                named.setdefault(tape.ids[id(value)], node)
        found, missing = list[Site](), ""
        for target, cut in ends_of(tape, Linearity(tape, self._linear), tape.operations, named):
            trial = _Trial(
                self.graph, [n for n in nodes if n not in data], values, others, named[cut.sources[0]], named[target]
            )
            try:
                one = trial.seen()
                same = [other for other in found if one is not None and {*one.between} & {*other.between}]
                if one is not None and all(_wider(one, other) for other in same):
                    found = [*(other for other in found if other not in same), one]
            except CannotSay as reason:
                missing = missing or str(reason)
        if missing and not found:
            raise CannotSay(missing)
        return found


class _Trial:
    """One stretch, from ``source`` to ``target``. ``others``: the values of a run on other inputs."""

    def __init__(
        self, graph: Graph, nodes: Sequence[fx.Node], values: Values, others: Values, source: fx.Node, target: fx.Node
    ) -> None:
        self.graph, self.nodes, self.values, self.others = graph, nodes, values, others
        self.source, self.target = source, target
        moving, needed = {source}, {target}
        for node in nodes:
            if moving.intersection(node.all_input_nodes):
                moving.add(node)
        for node in reversed(nodes):
            needed.update(node.all_input_nodes if node in needed else ())
        self.between = [n for n in nodes if n in needed & moving and n is not source]
        self.beside = [n for n in nodes if n in needed - moving]

    def turned(self, values: Values, tables: Values | None = None) -> Turned:
        """What becomes of heads, by the values of a run, or by other ``tables`` and what follows from them."""
        tables = tables or {}
        changed = {*self.between, *tables}
        for node in self.beside:
            if changed.intersection(node.all_input_nodes):
                changed.add(node)
        kept = {node: value for node, value in values.items() if node not in changed}

        def call(x: Tensor) -> Tensor:
            run = {**kept, **tables, self.source: x}
            self.graph.run([*self.beside, *self.between], run)
            y: Tensor = run[self.target]
            return y

        return call

    def seen(self) -> Site | None:
        """None where no pairs turn; raises `CannotSay` where they do as no operator says."""
        if any(node.target is ROTATE for node in self.between):
            return None
        x, run = self.values[self.source], self.turned(self.values)
        y, noted = self.values[self.target], shown(self.target)
        if (y.dtype, y.ndim) != (noted.dtype, noted.ndim):
            raise CannotSay("it runs otherwise by itself than in the graph")
        if (
            x.dtype != y.dtype
            or not x.is_floating_point()
            or not x.ndim
            or type(shown(self.source).shape[-1]) is not int
        ):
            return None
        links = _links(run, x)
        moving = links.clone().fill_diagonal_(False).any(1) | links.clone().fill_diagonal_(False).any(0)
        if int(links.sum(1).max()) != 2 or int(moving.sum()) % 2:
            return None
        layout = _layout(links, int(moving.sum()))
        if layout is None:
            raise CannotSay("its pairs are neither halves nor neighbours")
        heads = torch.zeros_like(x)
        layout.views(heads)[0].fill_(1)
        cos, sin = layout.written().split(layout.turned(run(heads)))
        table, sines = self._table(cos), (self._table(sin), self._table(-sin))
        missing = "its cos and sin are no values of the graph, one column for each pair"
        for backwards, other in enumerate(sines):
            if table is not None and other is not None:
                order = _order(x, table.of(self.values[table.node], layout.pairs), noted)
                ends = self.source, self.target, layout, table, other
                site = Site(*ends, bool(backwards), *order, tuple(self.between))
                self._check_memory(site)
                try:
                    proved = replace(site, difference=self._proved(site))
                    self._check_tables_alone(site)
                    return proved
                except CannotSay as reason:  # of sines that were negated, either may be the ones
                    missing = str(reason)
        raise CannotSay(missing)

    def _table(self, wanted: Tensor) -> Table | None:
        """The last value of the graph that has these numbers."""
        pairs = wanted.shape[-1]
        for node in reversed(self.beside):
            if node in self.graph.data or not is_float(node):
                continue
            value = self.values[node]
            for part in (0, 1) if value.is_complex() else (None,):
                for first, step in _columns(value.shape[-1] if value.ndim > 1 else 0, pairs):
                    table = Table(node, first, step, part)
                    try:
                        same = torch.broadcast_to(table.of(value, pairs), wanted.shape).to(wanted.dtype) == wanted
                    except RuntimeError:  # it has other axes
                        continue
                    if bool(same.all()):
                        return table
        return None

    def _check_memory(self, site: Site) -> None:
        nodes = (site.source, *self.between, site.cos.node, site.sin.node)
        values = [shown(node) for node in nodes]
        if any(isinstance(v, Tensor) and memory(v) in self.graph.written for v in values):
            raise CannotSay("something writes into the memory of its values")

    def _check_tables_alone(self, site: Site) -> None:
        """Raises `CannotSay` where something else decides, too: a mask may be open in all calls that are seen here."""
        if any(self.others[table.node].requires_grad for table in (site.cos, site.sin)):
            raise CannotSay("its cos and sin are trained, and the operator has no gradient for them")
        tables = {self.graph.computation(table.node) for table in (site.cos, site.sin)}
        waiting = {self.target}
        for node in reversed(self.nodes):
            if node not in waiting or node is self.source or self.graph.computation(node) in tables:
                continue
            if node in self.graph.free:
                raise CannotSay(f"beside cos and sin it follows from {node.name!r}")
            waiting.update(read_by(node))

    def _proved(self, site: Site) -> float:
        """The largest difference on random heads: by the tables of two calls, and by any numbers in their place."""
        largest, made, values = 0.0, torch.Generator().manual_seed(2), self.values
        anything = {t.node: _any_like(values[t.node], site.layout.pairs, made) for t in (site.cos, site.sin)}
        alike = {self.graph.computation(node): value for node, value in anything.items()}
        tables = {n: alike[c] for n in self.beside if (c := self.graph.computation(n)) in alike}
        runs: Sequence[tuple[str, Values, Values]] = (
            ("", values, {}),
            (" in another call", self.others, {}),
            (" by other tables", {**values, **tables}, tables),
        )
        for when, run, changed in runs:
            like = values[self.source]
            x = torch.empty_like(like).copy_(torch.randn(like.shape, generator=made))
            cos, sin = (t.of(run[t.node], site.layout.pairs) for t in (site.cos, site.sin))
            want, got = self.turned(run, changed)(x), site.rotated(x, run)
            away = (want.double() - got.double()).abs()
            if not bool((away <= _allowed(site.layout, x, cos, sin)).all()):
                raise CannotSay(f"its values differ by {float(away.max()):.2g}{when}")
            largest = max(largest, float(away.max()))
        return largest


def _any_like(value: Tensor, pairs: int, made: torch.Generator) -> Tensor:
    """Random numbers in the place of a table, each twice where the table has each twice."""
    new = torch.randn(value.shape, generator=made, dtype=torch.complex64 if value.is_complex() else torch.float32)
    half = new[..., :pairs]
    if value.shape[-1] == 2 * pairs and torch.equal(value[..., :pairs], value[..., pairs:]):
        new = torch.cat((half, half), -1)
    elif value.shape[-1] == 2 * pairs and torch.equal(value[..., ::2], value[..., 1::2]):
        new = half.repeat_interleave(2, -1)
    return new.to(value.dtype)


def _wider(one: Site, other: Site) -> bool:
    """Whether it is worth more than another of the same end: it takes passing channels, or a cast, along."""
    if one.target is other.target:
        return False
    a, b = shown(one.target), shown(other.target)
    return a.shape[-1] > b.shape[-1] or a.dtype.itemsize < b.dtype.itemsize


def _links(run: Turned, x: Tensor) -> Tensor:
    """``[channels in, channels out]``: whether one becomes part of the other at any token."""
    width = x.shape[-1]
    rows = x.numel() // width
    links = torch.zeros(width, width)
    once = -(-width // rows)  # runs in which each channel is seen at one token or more
    for i in range(once * 4):
        channels = (torch.arange(rows) + i * rows + i // once) % width
        heads = torch.zeros(rows, width, dtype=x.dtype)
        heads[torch.arange(rows), channels] = 1
        links.index_add_(
            0, channels, (run(torch.empty_like(x).copy_(heads.view(x.shape))).reshape(rows, width) != 0).float()
        )
    return links > 0


def _layout(links: Tensor, moving: int) -> Layout | None:
    """The one with the fewest pairs that has all links."""
    width = len(links)
    for rotary_dim in range(moving, width - width % 2 + 1, 2):
        for trailing in (False, True) if rotary_dim < width else (False,):
            for fields in ways(rotary_dim):
                layout = Layout(head_dim=width, rotary_dim=rotary_dim, trailing=trailing, **fields)
                channels = torch.arange(width)
                read, written = layout.split(channels), layout.written().split(channels)
                allowed = torch.zeros(width, width, dtype=torch.bool)
                allowed[channels[layout.passing], channels[layout.passing]] = True
                for one in read:
                    for to in written:
                        allowed[one, to] = True
                if not bool((links & ~allowed).any()) and all(bool(links[one].any(1).all()) for one in read):
                    return layout
    return None


def _columns(width: int, pairs: int) -> Iterator[tuple[int, int]]:
    """Where the columns of all pairs may stand."""
    if width >= pairs:
        yield 0, 1
    if width >= 2 * pairs:
        yield pairs, 1
        yield 0, 2
        yield 1, 2


def _order(x: Tensor, table: Tensor, target: Tensor) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """The format in which the operator lines these up, the order of axes that it is of, and the axes of its tables.

    The axis of the batch is kept where it is 1, too: it may be longer in another call.
    """
    more, last = x.ndim - table.ndim, x.ndim - 1
    long = tuple(i + more for i, n in enumerate(table.shape[:-1]) if n > 1)
    if x.ndim == 4 and long in ((), (0,)) and x.shape[2] == 1:  # one token
        long = (2,)
    long = long or next(((axis,) for axis in range(last)[::-1] if x.shape[axis] == 1), ())
    if x.ndim == 4 and not more and long in ((1,), (2,)):
        long = (0, *long)
    for axes in permutations(range(last)):
        order = FORMATS.get(last, {}).get(tuple(axes.index(axis) for axis in long), "")
        if order and target.permute(*axes, last).is_contiguous():
            return order, (*axes, last), long
    raise CannotSay(f"its heads have sizes {tuple(x.shape)}, and its tables {tuple(table.shape)}")


def _allowed(layout: Layout, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """By how much each value may differ: `ROUNDINGS` of its two products."""
    a, b = (part.double().abs() for part in layout.split(x))
    c, s = cos.double().abs(), sin.double().abs()
    eps = max(torch.finfo(kind).eps for kind in (x.dtype, cos.dtype))
    turned = layout.written().join(a * c + b * s, a * s + b * c) * eps * ROUNDINGS
    return layout.within(torch.zeros_like(x, dtype=torch.float64), turned)
