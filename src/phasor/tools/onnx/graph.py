"""A graph as a module of torch: each node is a module, so that a tape says of each operation which node it is of."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from .operators import DOMAINS, ELEMENTWISE, NORMS, NotShown, TableEnds, Unknown, apart, projected, small
from .read import SMALL, File, library

AXES = 4  # rows of a matrix up to which a product with it forms angles, of so many axes: it projects nothing
TOLD = ("interleaved", "num_heads", "rotary_embedding_dim", "rotary_interleaved")  # attributes that a report names
STANDARD = ("", "ai.onnx")
PLAIN = {*ELEMENTWISE, *NORMS, "Cast", "ReduceMean"}  # what stands between products with weights


@dataclass(frozen=True)
class Unread:
    """In the place of a value that could not be computed; ``rows``: of a table that ends too early."""

    reason: str
    rows: int = 0


class Node(nn.Module):
    """One node. ``reads``: the values it needs; ``channels``: of a product with weights, which are not needed then.

    ``sized``: only the sizes of what it makes are looked at.
    """

    def __init__(self, proto: Any, graph: "Graph") -> None:
        super().__init__()
        self.op, self.domain, self.outputs = proto.op_type, proto.domain, list(proto.output)
        self.name, self.inputs = proto.name or proto.output[0], list(proto.input)
        self.reads = [n for n in self.inputs if n]
        self.channels, self.sized, self.marks = 0, False, dict[str, Any]()
        for attribute in proto.attribute:
            value = library().helper.get_attribute_value(attribute)
            if hasattr(value, "node"):
                branch = Graph(value, graph.file, (graph,))
                self.add_module(attribute.name, branch)
                self.reads += [n for n in branch.reads if n not in branch.made]
            else:
                self.marks[attribute.name] = graph.file.tensor(value) if hasattr(value, "dims") else value
        if self.op == "Cast":
            self.marks["to"] = graph.file.kind(self.marks["to"])
        opset, has = graph.file.opset, library().defs.has
        self.fault = ""
        if self.domain in STANDARD and not has(self.op, opset):
            since = f" (it came with {library().defs.get_schema(self.op).since_version})" if has(self.op) else ""
            self.fault = f"opset {opset} has no such operator{since}, so the file is not valid"

    def __str__(self) -> str:
        told = (f"{name}={value}" for name, value in sorted(self.marks.items()) if name in TOLD)
        return ", ".join((f"{self.op} of {self.domain or 'ai.onnx'}", *told))

    @property
    def rotates(self) -> bool:
        """Whether it says that it rotates, by its name or an attribute."""
        return self.op == "RotaryEmbedding" or bool(self.marks.get("do_rotary"))

    def forward(self, *given: Any) -> Any:
        if self.fault:
            raise NotShown(self.fault)
        if self.channels and self.sized:
            return torch.empty(*given[0].shape[:-1], self.channels, dtype=given[0].dtype, device="meta")
        if self.channels:
            return projected(given[0], given[0].shape[:-1], self.channels)
        if self.op == "Constant":
            return torch.tensor(next(iter(self.marks.values())))
        if not self.reads:
            raise NotShown("it has no input" + " that it could rotate" * self.rotates)
        if self.sized:
            numbers = self.op in ELEMENTWISE  # elsewhere integers are axes
            given = tuple(x.to("meta") if x is not None and (numbers or x.is_floating_point()) else x for x in given)
        if self.op in ELEMENTWISE:
            small(torch.broadcast_shapes(*(x.shape for x in given)))
        if (call := DOMAINS.get(self.domain, {}).get(self.op)) is None:
            raise Unknown(f"no operator of {self.domain or 'ai.onnx'} that is known here")
        return call(*given, **self.marks)


class Edge(nn.Module):
    """A value that comes in or goes out: as it is, or with heads of so many channels apart."""

    def forward(self, x: Tensor, head_dim: int = 0) -> Tensor:
        joined = head_dim and x.ndim == 3 and x.shape[-1] % head_dim == 0
        return (apart(x, x.shape[-1] // head_dim) if joined else x).clone()


class Graph(nn.Module):
    """``entries``: its inputs, which are no constants; ``wanted``: its outputs; ``reads``, ``made``: by its nodes.

    ``outside``: the graph that a branch stands in, whose constants it may read.
    """

    def __init__(self, body: Any, file: File, outside: tuple["Graph", ...] = ()) -> None:
        super().__init__()
        self.file, self.outside, self.tensors = file, outside, {t.name: t for t in body.initializer}
        self.entries = [value for value in body.input if value.name not in self.tensors]
        self.wanted = [value.name for value in body.output]
        self.stated = {v.name: v.type.tensor_type for v in (*body.value_info, *body.output)}
        self.steps, self.nodes = list[Node](), nn.ModuleList()
        self.inlets, self.outlet = nn.ModuleList(Edge() for _ in self.entries), Edge()
        self.made, self.reads = {v.name for v in self.entries} | set(self.tensors), list[str]()
        self._loaded, self._makers = dict[str, Tensor](), dict[str, Node]()
        for proto in body.node:
            self._add(Node(proto, self), proto)
        self._mark_sized()

    def _add(self, node: Node, proto: Any) -> None:
        """Keeps a node, of which weights are cut off, or the value of a constant."""
        self.made.update(node.outputs)
        values = [a.t for a in proto.attribute if node.op == "Constant" and a.name == "value"]
        self.tensors.update(zip(node.outputs, values, strict=False))
        if not values:
            sizes = self.sizes(node.inputs[1]) if node.op in ("MatMul", "Gemm") else ()
            sizes = sizes[::-1] if node.marks.get("transB") else sizes
            if len(sizes) == 2 and sizes[0] > AXES and sizes[1] > 1 and not self.sizes(node.inputs[0]):
                node.channels, node.inputs = sizes[1], node.inputs[:1]
                node.reads = node.inputs
            self.nodes.append(node)
            self.steps.append(node)
            self._makers.update(dict.fromkeys(node.outputs, node))
            self.reads += node.reads

    def _mark_sized(self) -> None:
        """What leads to nothing but products with weights, as most of a model does, needs no values."""
        seen = set(self.wanted)
        for node in reversed(self.steps):
            node.sized = (node.op in PLAIN or node.channels > 0) and not seen.intersection(node.outputs)
            if not (node.sized or node.channels or node.op == "Shape"):
                seen.update(node.reads)

    def sizes(self, name: str) -> tuple[int, ...]:
        """Of constants, as they are, cast, turned or quantised; () of all that is not constant."""
        if name in self.tensors:
            return tuple(self.tensors[name].dims)
        node = self._makers.get(name)
        if node is None and self.outside:
            return self.outside[0].sizes(name)
        if node is None or node.op not in ("Cast", "DequantizeLinear", "Identity", "Transpose") or not node.inputs:
            return ()
        sizes = self.sizes(node.inputs[0])
        order = node.marks.get("perm", range(len(sizes))[::-1]) if node.op == "Transpose" else range(len(sizes))
        return tuple(sizes[i] for i in order) if sizes else ()

    def constant(self, name: str) -> Tensor | None:
        """A constant, read when it is first needed."""
        if name in self.tensors and name not in self._loaded:
            with _disable_current_modes():  # a tape would copy the whole file that a constant is mapped from
                self._loaded[name] = self.file.tensor(self.tensors[name])
        outer = (graph.constant(name) for graph in self.outside)
        return self._loaded[name] if name in self._loaded else next(outer, None)

    @cached_property
    def computed_as(self) -> dict[str, Any]:
        """By name: equal for values that nodes alike make of the same, as each layer of a model may write them out."""
        found, first = dict[str, Any](), dict[Any, str]()
        for name, tensor in self.tensors.items():
            if math.prod(tensor.dims) <= SMALL:
                found[name] = tensor.data_type, tuple(tensor.dims), self.file.tensor(tensor).numpy().tobytes()
        for node in self.steps:
            key = node.domain, node.op, repr(node.marks), tuple(found.get(name, name) for name in node.inputs)
            same = first.setdefault(key, node.outputs[0]) if not any(node.children()) else node.outputs[0]
            found.update((name, (same, i)) for i, name in enumerate(node.outputs))
        return found

    def needed(self, wanted: list[str], given: Mapping[str, Any]) -> list[Node]:
        """The nodes from which these values follow, beginning with those that are ``given``, in order."""
        waiting, found = set(wanted) - set(given), list[Node]()
        for node in reversed(self.steps):
            if waiting.intersection(node.outputs):
                found.append(node)
                waiting.update(n for n in node.reads if n not in given)
        return found[::-1]

    def forward(self, values: dict[str, Any], wanted: list[str], sizes: Mapping[str, int]) -> None:
        """Adds to the given ``values`` all that the wanted ones follow from; ``sizes``: of those that have names."""
        for node in self.needed(wanted, values):
            given = [self.value(name, values) if name else None for name in node.inputs]
            unread: Any = next((x for x in given if isinstance(x, Unread)), None)
            stated = self._as_stated(node.outputs[0], sizes) if unread is not None and node.channels else None
            made = self._ran(node, given, values, sizes) if unread is None else unread if stated is None else stated
            outputs = (
                made if isinstance(made, tuple) else [made] * (len(node.outputs) if isinstance(made, Unread) else 1)
            )
            values.update(zip(node.outputs, outputs, strict=False))

    def _ran(self, node: Node, given: list[Any], values: dict[str, Any], sizes: Mapping[str, int]) -> Any:
        try:
            if node.op == "If":
                branch: Any = node.get_submodule("then_branch" if bool(given[0]) else "else_branch")
                inner = dict(values)
                branch(inner, branch.wanted, sizes)
                return tuple(branch.value(name, inner) for name in branch.wanted)
            return node(*given)
        except Exception as error:  # whatever a damaged or odd node does, it says nothing about the others
            stated = [self._as_stated(name, sizes) for name in node.outputs]
            if isinstance(error, Unknown) and None not in stated:
                return tuple(stated)
            said = str(error) if isinstance(error, NotShown) else f"it does not run ({type(error).__name__}: {error})"
            rows = error.rows if isinstance(error, TableEnds) else 0
            return Unread(" ".join(f"{node.op} {node.name!r}: {said}".split())[:300], rows)

    def value(self, name: str, values: Mapping[str, Any]) -> Any:
        found = values[name] if name in values else self.constant(name)
        return Unread(f"{name!r} stands nowhere in the file") if found is None else found

    def _as_stated(self, name: str, sizes: Mapping[str, int]) -> Tensor | None:
        """What an unknown operator makes, as far as the file states its sizes: nothing that rotates is seen in it."""
        of = self.stated.get(name)
        shape = [d.dim_value or sizes.get(d.dim_param, 0) for d in of.shape.dim] if of is not None else []
        if len(shape) < 2 or not all(shape):
            return None
        return projected(torch.ones(0), shape[:-1], shape[-1])
