"""A model of ONNX with operators in the place of rotations: nodes that nothing reads any more go, all else stays."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .operators import DTYPES
from .read import bodies, inside, library
from .rotations import CONSTANTS, Rotation

STANDARD = 23  # the first opset with RotaryEmbedding


@dataclass(frozen=True, eq=False)
class Site:
    """A rotation, and the cos and sin ``[length, pairs]`` that stand for it."""

    rotation: Rotation
    cos: Tensor
    sin: Tensor


def rewritten(model: Any, sites: Sequence[Site], opset: int) -> Any:
    """A copy with one operator for each site, which writes what the site wrote."""
    made = type(model)()
    made.CopyFrom(model)
    graph = made.graph
    before, given = _read(graph), {value.name for value in graph.input}
    new = _New(graph, opset)
    at = {site.rotation.target: site for site in sites}
    nodes: list[Any] = []
    for node in graph.node:
        for i, name in enumerate(node.output):
            if name in at:
                nodes += new.operator(at[name])
                node.output[i] = ""
        nodes += [node] if any(node.output) else []
    living = [type(node).FromString(node.SerializeToString()) for node in _living(graph, nodes, before)]
    del graph.node[:]
    graph.node.extend(living)
    after = _read(graph)
    for kept in (graph.initializer, graph.value_info):
        for i in reversed([i for i, one in enumerate(kept) if one.name in before - after - given]):
            del kept[i]
    graph.initializer.extend(new.constants.values())
    made.ir_version = max(made.ir_version, CONSTANTS)
    if opset < STANDARD and not any(entry.domain == "com.microsoft" for entry in made.opset_import):
        made.opset_import.append(library().helper.make_opsetid("com.microsoft", 1))
    return made


@dataclass
class _New:
    """Nodes and constants to come; each constant and each form of positions is made once."""

    graph: Any
    opset: int
    constants: dict[Any, Any] = field(default_factory=dict)
    _positions: dict[tuple[str, str], str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        every = (one for node in self.graph.node for one in (node, *inside(node)))
        given = (one.name for one in (*self.graph.input, *self.graph.initializer))
        self._names = {*given, *(name for one in every for name in one.output)}

    def name(self, word: str) -> str:
        """One that no value has."""
        name = next(n for i in range(len(self._names) + 1) if (n := f"rotary_{word}_{i}") not in self._names)
        self._names.add(name)
        return name

    def constant(self, value: Tensor, word: str = "number") -> str:
        value = value.contiguous()
        data = value.reshape(-1).view(torch.uint8).numpy().tobytes()
        key = value.dtype, value.shape, data
        if key not in self.constants:
            kind = next(number for number, dtype in DTYPES.items() if dtype == value.dtype)
            helper = library().helper
            self.constants[key] = helper.make_tensor(self.name(word), kind, value.shape, data, raw=True)
        return str(self.constants[key].name)

    def whole(self, *numbers: int) -> str:
        return self.constant(torch.tensor(numbers, dtype=torch.int64))

    def node(self, op: str, *inputs: str, **marks: Any) -> Any:
        out = self.name(op.lower())
        return library().helper.make_node(op, list(inputs), [out], name=f"{out}_{op}", **marks)

    def operator(self, site: Site) -> list[Any]:
        """The nodes from its source to its target.

        com.microsoft's operator turns some of the channels, too, but OpenVINO 2026.4 then takes all, and says nothing.
        """
        of, turning, width = site.rotation, site.rotation.layout.rotary_dim, site.rotation.layout.head_dim
        if self.opset >= STANDARD or turning == width:
            return self._turning(site, of)
        first, rest = (
            self.node("Slice", of.source, self.whole(start), self.whole(end), self.whole(-1))
            for start, end in ((0, turning), (turning, width))
        )
        part = replace(
            of, source=first.output[0], target=self.name("turned"), shape=(*of.shape[:-1], turning),
            layout=replace(of.layout, head_dim=turning),
        )  # fmt: skip
        nodes = [first, rest, *self._turning(site, part), self.node("Concat", part.target, rest.output[0], axis=-1)]
        nodes[-1].output[0] = of.target
        return nodes

    def _turning(self, site: Site, of: Rotation) -> list[Any]:
        nodes = list[Any]()
        x, heads = of.source, 0
        shape = self._flat(of)
        if shape:
            nodes.append(self.node("Reshape", x, self.whole(*shape)))
            x, heads = nodes[-1].output[0], 0 if len(shape) == 4 else shape[-1] // of.shape[-1]
        elif len(of.shape) == 3:
            heads = 1
        at, forming = self._at(of)
        cos, sin = self.constant(site.cos, "cos"), self.constant(site.sin, "sin")
        marks: dict[str, Any] = {"interleaved": int(of.layout.interleaved)}
        if of.layout.rotary_dim < of.layout.head_dim:
            marks["rotary_embedding_dim"] = of.layout.rotary_dim
            heads = heads or (shape or of.shape)[1]
        if heads:
            marks["num_heads"] = heads
        order = (x, cos, sin, at) if self.opset >= STANDARD else (x, at, cos, sin)
        marks |= {} if self.opset >= STANDARD else {"domain": "com.microsoft"}
        nodes += [*forming, self.node("RotaryEmbedding", *order, **marks)]
        if shape:
            back = [0 if i in (0, of.tokens) and i < 2 else -1 if i == of.tokens else n for i, n in enumerate(of.shape)]
            nodes.append(self.node("Reshape", nodes[-1].output[0], self.whole(*back)))
        if of.layout.permuted:
            nodes.append(self.node("Gather", nodes[-1].output[0], self.whole(*of.layout.channels()), axis=-1))
        nodes[-1].output[0] = of.target
        return nodes

    def _flat(self, of: Rotation) -> tuple[int, ...]:
        """The shape that the operator takes, where it is not there already: batch, tokens and all heads in one, or
        batch, heads, tokens and channels; 0 is what was there, -1 the rest."""
        if len(of.shape) == 3 or (len(of.shape) == 4 and of.tokens == 2):
            return ()
        if of.tokens == 1:
            return 0, 0, torch.Size(of.shape[2:]).numel()
        return 0, torch.Size(of.shape[1:-2]).numel(), -1, of.shape[-1]

    def _at(self, of: Rotation) -> tuple[str, list[Any]]:
        """Positions ``[batch, tokens]``, and the nodes that form them where they are not there yet."""
        batch, tokens = of.shape[0], of.shape[of.tokens]
        if of.at == (batch, tokens) and of.counted_in == torch.int64:
            return of.positions, []
        key = of.positions, "" if of.positions or of.alike else of.source
        if key in self._positions:
            return self._positions[key], []
        nodes = [self.node("Shape", of.source)]
        sizes, at = nodes[0].output[0], of.positions
        if not at:
            scalars = [self.constant(torch.tensor(n)) for n in (of.tokens, 0, 1)]
            nodes.append(self.node("Gather", sizes, scalars[0], axis=0))
            nodes.append(self.node("Range", scalars[1], nodes[-1].output[0], scalars[2]))
            at = nodes[-1].output[0]
        elif of.counted_in != torch.int64:
            nodes.append(self.node("Cast", at, to=library().TensorProto.INT64))
            at = nodes[-1].output[0]
        nodes.append(self.node("Gather", sizes, self.whole(0), axis=0))
        first, rows = nodes[-1].output[0], torch.Size(of.at).numel() // tokens if of.at else 1
        if len(of.at) > 2 or of.at[-1:] == (1,):
            lead = [self.whole(1)] if rows == 1 else [first]
            nodes.append(self.node("Concat", *lead, self.whole(-1), axis=0))
            nodes.append(self.node("Reshape", at, nodes[-1].output[0]))
            at = nodes[-1].output[0]
        if rows == 1:
            nodes.append(self.node("Concat", first, self.whole(1), axis=0))
            nodes.append(self.node("Expand", at, nodes[-1].output[0]))
            at = nodes[-1].output[0]
        self._positions[key] = at
        return at, nodes


def _read(graph: Any) -> set[str]:
    """All names that something reads."""
    return {*(name for node in graph.node for name in _read_by(node)), *(out.name for out in graph.output)}


def _read_by(node: Any) -> Iterator[str]:
    """What a node reads, and what its branches read and give out."""
    yield from node.input
    for body in bodies(node):
        yield from _read(body)


def _living(graph: Any, nodes: Sequence[Any], before: set[str]) -> list[Any]:
    """Without the nodes that were read and are not any more."""
    reads, kept = {out.name for out in graph.output}, list[Any]()
    for node in reversed(nodes):
        if reads.intersection(node.output) or not before.intersection(node.output):
            kept.append(node)
            reads.update(_read_by(node))
    return kept[::-1]
