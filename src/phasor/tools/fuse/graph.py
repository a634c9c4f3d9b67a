"""A graph of torch.fx, run in parts: what goes into an attention is computed from made-up projections."""

import operator
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._pytree import tree_leaves

from ...eye.stretch import CannotSay
from ...eye.tape import Tape, record

ATTENDS = ("scaled_dot_product", "flex_attention")
PRODUCTS = ("matmul", "bmm", "baddbmm", "einsum", "__matmul__")
INPUTS = ("output", "placeholder", "get_attr")  # nodes that compute nothing
OF_SHAPES = ("new_", "zeros", "ones", "full", "empty", "rand", "sym_size", "size")


class Graph:
    """``given``: the values of its inputs, weights among them; ``fixed``: those that never have others.

    ``data``: the nodes that depend on what the tokens are; ``roots``: of these, what is projected or attended, which is
    not computed here: what a rotation does is the same for all values.
    """

    def __init__(self, module: fx.GraphModule, given: Mapping[fx.Node, Any], fixed: Collection[fx.Node] = ()) -> None:
        self.module, self.given, self.fixed = module, dict(given), fixed
        self._computations, self._first = dict[fx.Node, str](), dict[str, str]()
        self.data, self.roots, self.attending = set[fx.Node](), set[fx.Node](), list[fx.Node]()
        self._mark()
        if not self.roots:  # a graph without weights is given its heads
            self.data = {n for n in given if is_float(n) and shown(n).ndim > 2}
            self._mark()

    def _mark(self) -> None:
        weights = {n for n, value in self._constants() if isinstance(value, torch.nn.Parameter) and value.ndim > 1}
        varying = set(self.given) - {*self.fixed} - weights  # but for sizes
        for node in self.module.graph.nodes:
            reads = node.all_input_nodes
            if varying.intersection(reads) and not name_of(node).startswith(OF_SHAPES):
                varying.add(node)
            if reads and weights.issuperset(reads):
                weights.add(node)
            parts = tree_leaves(shown(node))  # of a split
            if node.op in INPUTS or node in weights or not any(map(of_floats, parts)):
                continue
            of_data = [n for n in reads if n in self.data]
            projects = weights.intersection(reads) and varying.intersection(reads)
            attends = len(of_data) > 1 and name_of(node).removeprefix("_").startswith((*ATTENDS, *PRODUCTS))
            if attends or projects or self._projects(node):
                self.roots.add(node)
                self.attending += [node] if attends else []
            if node in self.roots or (of_data and not name_of(node).startswith(OF_SHAPES)):
                self.data.add(node)

    def _constants(self) -> Iterator[tuple[fx.Node, Any]]:
        yield from self.given.items()
        for node in self.module.graph.find_nodes(op="get_attr"):
            yield node, operator.attrgetter(str(node.target))(self.module)

    def _projects(self, node: fx.Node) -> bool:
        """Whether a node is a module with a matrix of weights."""
        own = self.module.get_submodule(str(node.target)).parameters() if node.op == "call_module" else ()
        return any(p.ndim > 1 for p in own)

    @cached_property
    def ends(self) -> list[fx.Node]:
        """Where a rotation may end: what is attended or written into a cache; else what leaves the graph."""
        found = [n for node in self.attending for n in node.all_input_nodes[:2]]
        for node in self.module.graph.nodes:
            if changed := self._changed(node):
                found += [n for n in node.all_input_nodes if n not in changed]
        if not self.attending:
            found += self.module.graph.output_node().all_input_nodes
        return list(dict.fromkeys(n for n in found if is_float(n) and shown(n).ndim > 2))

    @cached_property
    def written(self) -> set[int]:
        """The memory that something writes into."""
        values = (shown(n) for node in self.module.graph.nodes for n in self._changed(node))
        return {memory(value) for value in values if isinstance(value, Tensor)}

    def _changed(self, node: fx.Node) -> list[fx.Node]:
        """What it writes into."""
        if (schema := getattr(node.target, "_schema", None)) is not None:
            kinds = {a.name: a.alias_info for a in schema.arguments}
            given = {**dict(zip(kinds, node.args, strict=False)), **node.kwargs}
            values = [value for name, value in given.items() if (kind := kinds[name]) is not None and kind.is_write]
        elif node.op == "call_module":
            values = (
                list(node.args[:1]) if getattr(self.module.get_submodule(str(node.target)), "inplace", False) else []
            )
        else:
            values = [node.kwargs.get("out"), *(node.args[:1] if in_place(node) else ())]
        return [n for n in tree_leaves(values) if isinstance(n, fx.Node)]

    def _is_written(self, node: fx.Node) -> bool:
        return isinstance(value := shown(node), Tensor) and memory(value) in self.written

    @cached_property
    def free(self) -> set[fx.Node]:
        """What may be other numbers in another call: inputs, what is trained, what is written into."""
        trained = {node for node, value in self._constants() if isinstance(value, torch.nn.Parameter)}
        return trained | {node for node in self.given if node not in self.fixed or self._is_written(node)}

    def computation(self, node: fx.Node) -> str:
        """The first node that computes the same from the same."""
        if node not in self._computations:
            read = [fx.map_arg(given, self.computation) for given in (node.args, node.kwargs)]
            key = repr(node) if node.op in INPUTS else repr((node.target, read))
            self._computations[node] = self._first.setdefault(key, repr(node))
        return self._computations[node]

    def before(self, end: fx.Node) -> tuple[list[fx.Node], list[fx.Node]]:
        """What ``end`` follows from, in order, back to the roots; and these, or the inputs of its size."""
        waiting, found = {end}, list[fx.Node]()
        for node in reversed(self.module.graph.nodes):
            if node in waiting:
                found.append(node)
                waiting.update(() if node in self.roots else node.all_input_nodes)
        alike = [n for n in found if n in self.given and n in self.data and shown(n).numel() == shown(end).numel()]
        return found[::-1], [n for n in found if n in self.roots] or alike

    def run(self, nodes: Collection[fx.Node], values: dict[fx.Node, Any]) -> None:
        """Adds the values of ``nodes`` to those that are known."""
        interpreter = fx.Interpreter(self.module, garbage_collect_values=False)
        interpreter.env = values
        for node in nodes:
            if node in values:
                continue
            try:
                values[node] = interpreter.run_node(node)
            except Exception as error:  # whatever an operation of somebody's own needs
                said = " ".join(f"{type(error).__name__}: {error}".split())
                raise CannotSay(f"it does not run by itself ({said[:200]})") from None

    def made(self, nodes: Collection[fx.Node], data: Collection[fx.Node], seed: int = 0) -> dict[fx.Node, Any]:
        """The inputs among ``nodes``, and numbers for ``data``; all but the first time of other values."""
        made = torch.Generator().manual_seed(seed)
        values: dict[fx.Node, Any] = {}
        for node in nodes:
            if node in data:
                values[node] = in_memory_of(node, torch.randn(sizes(node), generator=made))
            elif node in self.given:
                value = self.given[node]
                values[node] = value.clone() if self._is_written(node) else value
                if seed and node not in self.fixed:
                    values[node] = other(values[node], made)
        return values

    def recorded(self, nodes: Collection[fx.Node], data: Collection[fx.Node]) -> tuple[dict[fx.Node, Any], Tape]:
        """Their values, and the tape of it."""
        values = self.made(nodes, data)
        tape = record(lambda: self.run(nodes, values), None, [values[node] for node in data], places=False)
        if tape.raised is not None:
            raise tape.raised
        return values, tape


def other(value: Any, made: torch.Generator) -> Any:
    """Other values of an input: whole numbers backwards, since they may be rows of a table."""
    if (
        not isinstance(value, Tensor)
        or isinstance(value, torch.nn.Parameter)
        or value.dtype == torch.bool
        or not value.ndim
    ):
        return value
    if not value.is_floating_point():
        return value.flip(-1)
    return (value * (0.5 + torch.rand(value.shape, generator=made) / 2)).to(value.dtype)


def shown(node: fx.Node) -> Any:
    """The value that a tracer has noted, with a shape and without numbers."""
    return node.meta.get("val", node.meta.get("example_value"))


def is_float(node: fx.Node) -> bool:
    return of_floats(shown(node))


def of_floats(value: Any) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def sizes(node: fx.Node) -> list[int]:
    """Those of the example, where they are free; raises `CannotSay` for those that only the data tell."""
    found = [hint(size) for size in shown(node).shape]
    if None in found:
        raise CannotSay(f"the sizes of {node.name!r} follow from the data")
    return found


def hint(size: Any) -> Any:
    return size.node.hint if isinstance(size, torch.SymInt) else size


def in_memory_of(node: fx.Node, value: Tensor) -> Tensor:
    """With the type and the strides that were noted: only these may be viewed as what follows views them."""
    noted = shown(node)
    strides = [hint(step) for step in noted.stride()]
    return (
        torch.empty_strided(value.shape, strides, dtype=noted.dtype).copy_(value) if all(strides) else value.to(noted)
    )


def name_of(node: fx.Node) -> str:
    """Without its overload: ``"mul"``."""
    if isinstance(node.target, str):
        return node.target
    packet = getattr(node.target, "overloadpacket", None)
    return str(getattr(packet or node.target, "__name__", node.target))


def in_place(node: fx.Node) -> bool:
    """Whether a function of Python changes its first argument: ``setitem``, ``add_``, ``iadd``, ``inplace=True``."""
    name = name_of(node)
    if name.endswith("__"):
        name = name.strip("_")
    assigns = name.startswith("i") and hasattr(Tensor, f"__{name[1:]}__")
    named = name == "setitem" or (name.endswith("_") and name not in ("and_", "is_", "not_", "or_"))
    return assigns or named or bool(node.kwargs.get("inplace"))


def read_by(node: fx.Node) -> list[fx.Node]:
    """What its numbers follow from: of some only the sizes or the type are read."""
    if name_of(node).startswith(OF_SHAPES):
        return []
    alike = name_of(node).endswith("_as") or name_of(node) == "to"
    return [n for n in node.all_input_nodes[: 1 if alike else None] if has_numbers(n)]


def has_numbers(node: fx.Node) -> bool:
    return node.op in INPUTS or any(isinstance(leaf, Tensor | float) for leaf in tree_leaves(shown(node)))


def memory(value: Tensor) -> int:
    return value.untyped_storage()._cdata
