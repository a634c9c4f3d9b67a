"""The rotations of a graph that one operator can say: between which values, by which tables, at whose positions."""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...eye.frequencies import NotExplained, frequencies
from ...eye.stretch import CannotSay, Stretch, Stretches, coordinate_in, tables_of
from ...eye.tape import Operation, upstream
from ...rotary.layout import Layout
from .graph import Graph, Unread
from .inputs import Sizes, inputs, padded
from .look import Turn, first_look
from .operators import BIGGEST
from .read import File

TOKENS = 11  # of the first look: seldom a number of heads
AT_ONCE = 64  # tokens of one run
FARTHEST = 2**40  # a position that is in no table
PAST = 5  # tokens in a cache, where there is one
CONSTANTS = 4  # the first version of files whose initializers need not be inputs


@dataclass(frozen=True, eq=False)
class Rotation:
    """``source`` becomes ``target``, both of a ``shape`` with tokens at axis ``tokens``.

    ``positions``: the value that says where these stand, of shape ``at`` and type ``counted_in``; "" where the graph
    counts from 0, with ``alike`` one length for all. ``inv_freq`` of each pair, as it stands in the graph; None where
    that holds tables. ``factor`` is inside cos and sin. ``angles_in``, ``tables_in``: the types that the graph forms
    angles and tables in.
    """

    source: str
    target: str
    shape: tuple[int, ...]
    tokens: int
    dtype: torch.dtype
    positions: str
    at: tuple[int, ...]
    counted_in: torch.dtype
    alike: bool
    layout: Layout
    inv_freq: tuple[float, ...] | None
    factor: float
    angles_in: torch.dtype
    tables_in: torch.dtype

    def __str__(self) -> str:
        turning, width = self.layout.rotary_dim, self.layout.head_dim
        channels = f"all {width}" if turning == width else f"the first {turning} of {width}"
        pairs = "interleaved" if self.layout.interleaved else "halves"
        pairs += ", written as halves" if self.layout.permuted else ""
        return f"{self.source!r} to {self.target!r}, {channels} channels, {pairs}"


class Rotations:
    """Those of one graph. ``seen``: one look at it."""

    def __init__(self, file: File) -> None:
        self.graph, wide = Graph(file.graph, file), Graph(file.graph, replace(file, wide=True))
        self.seen, self.sizes, self.batch = first_look(wide, TOKENS, count=True)
        tape = self.seen.tape
        self.names: dict[int, str] = {}
        for name, value in self.seen.values.items():
            if isinstance(value, Tensor) and id(value) in tape.ids:
                self.names.setdefault(tape.ids[id(value)], name)
        self._stretches = Stretches(tape, self.names)
        others = Sizes(self.graph, TOKENS, self.batch if self.batch == 1 else self.batch + 1)
        values: dict[str, Any] = inputs(self.graph, others, {}, count=True)
        self.graph(values, self.graph.wanted, others)
        self._again = {name: (x.dtype, tuple(x.shape)) for name, x in values.items() if isinstance(x, Tensor)}

    def _type(self, name: str) -> torch.dtype:
        """Of a value as the graph has it, not widened."""
        if name not in self._again:
            raise CannotSay(f"{name!r} cannot be computed in the types that the file has")
        return self._again[name][0]

    def of(self, turn: Turn) -> Rotation:
        """Raises `CannotSay` where no operator says it."""
        assert turn.side.operator is not None
        tape = self.seen.tape
        stretch = self._stretches.of(turn.side.operator, turn.side.operator.angles.shape[-1])
        try:
            at, inv_freq = self._positions(stretch)
        except CannotSay:  # one table of all tokens says what several axes do, where nothing that goes in does
            if self.sizes.free or self._inputs_beside(stretch, None):
                raise
            at, inv_freq = None, None
        angles_in, tables_in = self._formed_in(turn, stretch)
        source, target = self.names[stretch.source], self.names[stretch.target]
        self._check_constants(source, target)
        self._check_heads(source, target, stretch)
        return Rotation(
            source=source,
            target=target,
            shape=tuple(tape.values[stretch.source].shape),
            tokens=stretch.tokens,
            dtype=self._type(target),
            positions="" if at is None else self.names[at],
            at=() if at is None else tuple(tape.values[at].shape),
            counted_in=torch.int64 if at is None else self._type(self.names[at]),
            alike=self.sizes.alike,
            layout=stretch.place.layout,
            inv_freq=inv_freq,
            factor=stretch.factor,
            angles_in=angles_in,
            tables_in=tables_in,
        )

    def _positions(self, stretch: Stretch) -> tuple[int | None, tuple[float, ...] | None]:
        """The value that says where its tokens stand, and the frequencies of its pairs where these are exact."""
        tape = self.seen.tape
        try:
            found = frequencies(tape, stretch.seen)
        except NotExplained as reason:
            raise CannotSay(str(reason)) from None
        if len(found.coordinates) > 1:
            raise CannotSay(f"its pairs follow {len(found.coordinates)} axes of positions")
        if found.before or found.after or bool((found.coordinates[0] < 0).any()):
            raise CannotSay("some of its tokens pass, or stand at positions below 0")
        at = coordinate_in(tape, stretch.seen, found.coordinates[0], self.names)
        if beside := self._inputs_beside(stretch, at):
            raise CannotSay(f"its angles follow from {', '.join(beside)}, and not from one row of positions alone")
        inv_freq = [0.0] * stretch.place.layout.pairs
        for pair, value in zip(stretch.place.pair_of, found.values[0].tolist(), strict=True):
            inv_freq[pair] = value
        return at, tuple(inv_freq) if found.exact and stretch.exact else None

    def _check_constants(self, source: str, target: str) -> None:
        """Those that are inputs, too, are only what these are by default; before `CONSTANTS` all had to be."""
        nodes = self.graph.needed([target], {source: None})
        read = {name for node in nodes for name in node.reads if name in self.graph.tensors}
        given = [value.name for value in self.graph.file.graph.input if value.name in read]
        if given and self.graph.file.model.ir_version >= CONSTANTS:
            raise CannotSay(f"it follows from {given[0]!r}, an input that has a default")

    def _check_heads(self, source: str, target: str, stretch: Stretch) -> None:
        """Of one type, which the operator takes, and with another batch of the same sizes but for that."""
        tokens = self.seen.tape.values[stretch.source].shape[stretch.tokens]
        if self.sizes.free and tokens != self.sizes.tokens:
            raise CannotSay(f"of {self.sizes.tokens} tokens {tokens} turn, and their number is free")
        if self._type(source) != self._type(target):
            raise CannotSay(f"{self._type(source)} goes in and {self._type(target)} comes out")
        if self._type(source) == torch.float64:
            raise CannotSay("its heads are float64, which no RotaryEmbedding takes")
        sizes = zip(self.seen.tape.values[stretch.source].shape, self._again[source][1], strict=True)
        free = [axis for axis, (one, other) in enumerate(sizes) if one != other and axis not in (0, stretch.tokens)]
        if free:
            raise CannotSay(f"axis {free[0]} of {source!r} has no fixed size, which only batch and tokens may have")

    def _inputs_beside(self, stretch: Stretch, at: int | None) -> list[str]:
        """The inputs whose values its tables follow from, by ways that do not lead through its positions."""
        tape, entries = self.seen.tape, self.seen.graph.entries
        formed = upstream(tape, tables_of(tape, stretch.seen), () if at is None else (at,))
        modules = {maker.module for i in formed if (maker := tape.maker(i)) is not None}
        return [repr(value.name) for i, value in enumerate(entries) if f"inlets.{i}" in modules]

    def _formed_in(self, turn: Turn, stretch: Stretch) -> tuple[torch.dtype, torch.dtype]:
        """The types of angles and of tables: the narrowest before, and after, cosines are taken; float32 where the
        graph holds tables."""
        formed = self.seen.behind(Turn(turn.side, stretch.seen.operations))
        first = min((o.index for o in formed if o.name in ("cos", "sin")), default=None)
        if first is None:
            return torch.float32, torch.float32
        before, after = (o for o in formed if o.index <= first), (o for o in formed if o.index > first)
        return self._narrowest(*before), self._narrowest(*after)

    def _narrowest(self, *operations: Operation) -> torch.dtype:
        kinds = {self._type(node.outputs[0]) for node in self.seen.nodes(operations).values()}
        wide = (kind for kind in kinds if kind.is_floating_point)
        return max(wide, key=lambda kind: torch.finfo(kind).eps, default=torch.float32)


class Rerun:
    """One rotation, run on other heads at other positions, as often as wanted.

    What it needs beside them is computed once, for ``count`` tokens behind a cache of ``past``, the second sequence
    padded: a graph that adds these to its positions, behind where they were found, turns otherwise here than it should.
    """

    def __init__(self, graph: Graph, of: Rotation, count: int, batch: int, past: int = PAST) -> None:
        self.graph, self.of, self.batch = graph, of, batch
        self.sizes = Sizes(graph, count, batch, past)
        self.count = self.sizes.tokens if self.sizes.free else of.shape[of.tokens]
        self.values: dict[str, Any] = inputs(graph, self.sizes, {}, count=True)
        padded(self.values)
        free = [name for name in (of.source, of.positions) if name]
        nodes, moving = graph.needed([of.target], dict.fromkeys([*self.values, *free])), set(free)
        for node in nodes:
            if moving.intersection(node.reads):
                moving.update(node.outputs)
        again = [node for node in nodes if moving.intersection(node.outputs)]
        self.values = {name: value for name, value in self.values.items() if name not in free}
        graph(self.values, [name for node in again for name in node.reads if name not in moving], self.sizes)

        self.shape = [self.count if axis == of.tokens else n for axis, n in enumerate(of.shape)]
        axis = max((i for i, n in enumerate(of.at) if n > 1), default=-1)
        self._at = [self.count if i == axis else n for i, n in enumerate(of.at)]

    @property
    def rows(self) -> int:
        """Of positions: as many as sequences, or one for all."""
        return math.prod(self._at) // self.count if self._at else 1

    def __call__(self, x: Tensor, rows: Tensor) -> Any:
        """What becomes of ``x`` at positions ``[batch, tokens]``, or why it does not run.

        Where the graph has one row of positions for all sequences, it is the first.
        """
        values = {**self.values, self.of.source: x}
        if self.of.positions:
            values[self.of.positions] = rows[: self.rows].reshape(self._at).to(self.of.counted_in)
        self.graph(values, [self.of.target], self.sizes)
        return values[self.of.target]

    def stands(self, x: Tensor) -> Any:
        """The positions that the graph itself forms, or why there are none."""
        values = {**self.values, self.of.source: x}
        self.graph(values, [self.of.positions], self.sizes)
        return self.graph.value(self.of.positions, values)

    def tables(self, wanted: Collection[str], rows: Tensor) -> dict[str, Any]:
        """Values that do not follow from what is turned, but for its sizes."""
        values = {**self.values, self.of.source: torch.zeros((), dtype=self.of.dtype).expand(self.shape)}
        values[self.of.positions] = rows[: self.rows].reshape(self._at).to(self.of.counted_in)
        self.graph(values, list(wanted), self.sizes)
        return {name: self.graph.value(name, values) for name in wanted}


def tables_read(graph: Graph, of: Rotation) -> frozenset[str]:
    """The values that a rotation brings to what is turned."""
    nodes = graph.needed([of.target], dict.fromkeys((of.source, of.positions)))
    turned = {of.source}
    for node in nodes:
        if node.op != "Shape" and turned.intersection(node.reads):
            turned.update(node.outputs)
    read = {name for node in nodes if turned.intersection(node.outputs) for name in node.reads}
    return frozenset(name for name in read - turned if graph.constant(name) is None)


def every_position(graph: Graph, of: Rotation, length: int, batch: int) -> Iterator[Tensor]:
    """``[batch, tokens]`` for one run after the other, until 0 to ``length - 1`` were there."""
    if not of.positions and math.prod(of.shape) // of.shape[of.tokens] * length > BIGGEST:
        raise CannotSay(f"it counts its positions itself, and {length:,} of them are too many to run it at")
    sizes = Sizes(graph, AT_ONCE if of.positions else length, batch)
    count = sizes.tokens if sizes.free else of.shape[of.tokens]
    for first in range(0, length, count):
        yield torch.arange(first, first + count).clamp(max=length - 1).expand(batch, -1)


def rows_in(graph: Graph, of: Rotation, batch: int) -> int | None:
    """Rows of the tables that stand in the graph; None where it has an angle for every position."""
    if not of.positions:
        return None
    run = Rerun(graph, of, AT_ONCE, batch)
    farthest = FARTHEST if of.counted_in.is_floating_point else min(FARTHEST, torch.iinfo(of.counted_in).max)
    far = run(torch.zeros(run.shape, dtype=of.dtype), torch.full((batch, run.count), farthest))
    return (far.rows or None) if isinstance(far, Unread) else None


def tables(graph: Graph, of: Rotation, length: int, batch: int) -> tuple[Tensor, Tensor]:
    """cos and sin ``[length, pairs]`` in the type of what is turned: of the exact angles, if their frequencies stand in
    the graph; else those that it turns by. Raises `CannotSay` where these cannot be read."""
    if length * of.layout.pairs > BIGGEST:
        raise ValueError(
            f"tables of {length:,} positions, {of.layout.pairs} pairs each, are too large; give a smaller length "
            f"(--length), at most {BIGGEST // of.layout.pairs:,}"
        )
    if of.inv_freq is not None:
        angles = torch.arange(length, dtype=torch.float64)[:, None] * torch.tensor(of.inv_freq, dtype=torch.float64)
        return (of.factor * angles.cos()).to(of.dtype), (of.factor * angles.sin()).to(of.dtype)
    read: list[Tensor] = []
    run: Rerun | None = None
    for rows in every_position(graph, of, length, batch):
        run = run or Rerun(graph, of, rows.shape[-1], batch, past=0)
        x = torch.zeros(run.shape, dtype=of.dtype)
        of.layout.views(x)[0].fill_(1)
        turned = run(x, rows)
        if isinstance(turned, Unread):
            raise CannotSay(turned.reason)
        read.append(turned.movedim(of.tokens, -2).flatten(0, -3)[0])
    cos, sin = of.layout.written().split(torch.cat(read)[:length])
    return cos.contiguous(), sin.contiguous()
