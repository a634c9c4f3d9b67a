"""What turns in one run of a graph: its attentions seen by the eye, and of which nodes each rotation is made."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor

from ...eye.attention import attentions
from ...eye.linear import MOVES, mixes, plain_factor
from ...eye.sites import Side, sites_of
from ...eye.tape import Operation, Tape, record, upstream
from ...eye.turning import Eye
from .graph import Graph, Node, Unread
from .inputs import Sizes, inputs

SUMS = {"add", "sub", "add_", "sub_", "addcmul", "cat", "stack"}


@dataclass(frozen=True)
class Turn:
    """One value that may turn: q or k of an attention, or what leaves a graph without one.

    ``operations``: from where it is projected, or, where it turns, what turns it.
    """

    side: Side
    operations: tuple[Operation, ...]

    @property
    def turns(self) -> bool:
        return self.side.operator is not None and bool(self.side.operator.pairs)


@dataclass(frozen=True)
class Look:
    """``turns``: by the module and the side that they are of; ``values``: of the graph, by name."""

    graph: Graph
    tape: Tape
    turns: Mapping[tuple[str, str], Turn]
    values: Mapping[str, Any]

    @property
    def unread(self) -> tuple[str, ...]:
        """What could not be run."""
        return tuple(dict.fromkeys(x.reason for x in self.values.values() if isinstance(x, Unread)))

    def nodes(self, operations: Iterator[Operation] | tuple[Operation, ...]) -> dict[str, Node]:
        """The nodes that operations are of, by their paths."""
        paths = dict.fromkeys(o.module for o in operations if ".nodes" in f".{o.module}")
        return {path: self.graph.get_submodule(path) for path in paths}  # type: ignore[misc]

    def name(self, turn: Turn) -> tuple[str, str]:
        """The node that stands for a rotation, and what it is made of."""
        operations = sorted(turn.operations, key=lambda o: o.index)
        nodes = self.nodes(tuple(operations))
        if operator := next((node for node in nodes.values() if node.rotates), None):
            return operator.name, str(operator)
        changing = [
            o for o in operations if o.name not in MOVES and plain_factor(self.tape, o) == 1 and o.module in nodes
        ]
        sums = [o for o in changing if o.name in SUMS and len(self.tape.data.intersection(o.inputs)) > 1]
        added = [o for o in sums if o.name not in ("cat", "stack")] or sums or changing or operations
        last = nodes.get((sums or added)[-1].module)
        first = nodes.get(added[0].module)
        if first is None or last is None:
            return "", "no nodes"
        return first.name, f"plain nodes up to {last.outputs[0]!r}"

    def behind(self, turn: Turn) -> tuple[Operation, ...]:
        """The operations that form the tables of a rotation."""
        tables = [i for o in turn.operations for i in o.inputs if i not in self.tape.data]
        makers = (self.tape.maker(i) for i in upstream(self.tape, tables))
        return tuple(maker for maker in makers if maker is not None)

    def among(self, turn: Turn) -> str:
        """The inputs that hold real numbers, where it is made of several."""
        paths = {o.module for o in turn.operations}
        names = [repr(v.name) for i, v in enumerate(self.graph.entries) if f"inlets.{i}" in paths]
        return f", the inputs {', '.join(names)}" if len(names) > 1 else ""

    def leaves(self, turn: Turn) -> list[str]:
        """The inputs of the graph that its tables follow from."""
        paths = {o.module for o in self.behind(turn)}
        return sorted(v.name for i, v in enumerate(self.graph.entries) if f"inlets.{i}" in paths)


def first_look(graph: Graph, tokens: int, head_dim: int = 0, count: bool = False) -> tuple[Look, Sizes, int]:
    """At two sequences, or at one where nothing is seen to turn in two: the graph may be for one."""
    for batch in (2, 1):
        sizes = Sizes(graph, tokens, batch)
        seen = look(graph, sizes, inputs(graph, sizes, {}, count), {}, head_dim)
        if any(turn.turns for turn in seen.turns.values()):
            break
    return seen, sizes, batch


def look(graph: Graph, sizes: Sizes, given: Mapping[str, Tensor], taken: Mapping[str, Any], head_dim: int) -> Look:
    """One run. Values that are ``taken`` are not computed."""
    values: dict[str, Any] = dict(taken)

    def call() -> None:
        for value, inlet in zip(graph.entries, graph.inlets, strict=True):
            values[value.name] = inlet(given[value.name])
        graph(values, graph.wanted, sizes)
        for value in _ends(graph, values):
            graph.outlet(value, head_dim)

    contents = [x for x in given.values() if x.is_floating_point()]
    tape = record(call, graph, contents, places=False, copied=False)  # no node writes into what it reads
    if tape.raised is not None:
        raise tape.raised
    turns: dict[tuple[str, str], Turn] = {}
    for site in sites_of(tape):
        for side, at in ((site.q, site.attention.q), (site.k, site.attention.k), (site.v, site.attention.v)):
            if at is not None and (side.turns or side is not site.v):
                turns[site.where, side.name] = _turn(tape, side, at)
    if not attentions(tape):
        eye, ends = Eye(tape), [o.outputs[0] for o in tape.operations if o.module == "outlet" and o.name == "clone"]
        for number, end in enumerate(i for i in ends if i is not None and i in tape.data):
            turns["outlet", str(number)] = _turn(
                tape, Side(tape, partial(eye.seen, end, sizes.tokens), str(number)), end
            )
    return Look(graph, tape, turns, values)


def _ends(graph: Graph, values: Mapping[str, Any]) -> list[Tensor]:
    """What leaves the graph, or goes into a node that did not run."""
    names = [*graph.wanted]
    for node in graph.steps:
        if any(isinstance(values.get(name), Unread) for name in node.outputs):
            names += node.reads
    ends = (values.get(name) for name in dict.fromkeys(names))
    return [x for x in ends if isinstance(x, Tensor) and x.is_floating_point() and x.ndim > 2 and not x.is_meta]


def _turn(tape: Tape, side: Side, target: int) -> Turn:
    operator = side.operator
    if operator is not None and operator.pairs:
        return Turn(side, operator.operations)
    return Turn(side, tuple(_since_projection(tape, target)))


def _since_projection(tape: Tape, target: int) -> Iterator[Operation]:
    pending, done = {target}, set[int]()
    while pending:
        number = pending.pop()
        operation = tape.maker(number)
        done.add(number)
        if operation is not None and not mixes(tape, operation):
            yield operation
            pending |= {i for i in operation.inputs if i in tape.data} - done
