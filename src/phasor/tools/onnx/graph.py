"""A graph as read: who makes each value, what is constant, what follows from positions alone, what only moves."""

from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

# Nodes that put the elements of their first input (of all, for Concat) elsewhere, or turn their signs.
MOVING = {
    "Cast", "CastLike", "Concat", "Expand", "Flatten", "Gather", "Identity", "Neg", "Reshape", "Slice", "Split",
    "Squeeze", "Transpose", "Unsqueeze",
}  # fmt: skip
# Nodes whose results no table of angles goes through: what comes out of them is data.
DATA = {
    "Attention", "BatchNormalization", "Conv", "Erf", "FusedMatMul", "Gelu", "Gemm", "GroupNormalization",
    "GroupQueryAttention", "InstanceNormalization", "LayerNormalization", "MatMulInteger", "MatMulNBits",
    "MultiHeadAttention", "QLinearMatMul", "QuickGelu", "RMSNormalization", "RotaryEmbedding", "Sigmoid",
    "SimplifiedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization", "Softmax",
}  # fmt: skip
INTEGERS = (6, 7, 12, 13)  # int32, int64, uint32, uint64 in TensorProto.DataType
FLOATS = (1, 10, 11, 16)  # float, float16, double, bfloat16


class Graph:
    """``nodes`` in order; ``makers``: value -> index of its node; ``users``: value -> indices of nodes that read it.

    ``shapes``: value -> sizes, a number or the name of one that is free (None where nothing is known of it);
    ``kinds``: value -> element type; ``inputs``: the names of those of the graph that are no constants.
    """

    def __init__(self, model: Any, folder: Path, typed: Any) -> None:
        graph = model.graph
        self.opsets, self.folder, self.ir_version = list(model.opset_import), folder, model.ir_version
        self.nodes: list[Any] = list(graph.node)
        self.tensors: dict[str, Any] = {t.name: t for t in graph.initializer}
        for node in self.nodes:
            if node.op_type == "Constant":
                for value in (a.t for a in node.attribute if a.name == "value"):
                    self.tensors[node.output[0]] = value
        self.makers = {name: i for i, node in enumerate(self.nodes) for name in node.output if name}
        self.users: dict[str, list[int]] = {}
        for i, node in enumerate(self.nodes):
            for name in dict.fromkeys(inputs_of(node)):
                self.users.setdefault(name, []).append(i)
                if self.makers.get(name, -1) >= i:
                    raise ValueError(f"{name!r} is read before it is made")
        self.inputs = [v.name for v in graph.input if v.name not in self.tensors]
        self.shapes: dict[str, tuple[int | str | None, ...]] = {}
        self.kinds: dict[str, int] = {}
        for value in (*typed.input, *typed.value_info, *typed.output):
            of = value.type.tensor_type
            self.kinds[value.name] = of.elem_type
            if of.HasField("shape"):
                self.shapes[value.name] = tuple(map(_size, of.shape.dim))
        self.sized: dict[tuple[int, str | None], dict[str, tuple[int, ...]]] = {}  # of `Sizes` -> shapes
        self._positional: dict[str, bool] = {}

    def array(self, name: str) -> np.ndarray:
        """The values of a constant."""
        values: np.ndarray = library().numpy_helper.to_array(self.tensors[name], str(self.folder))
        return values

    def positional(self, name: str) -> bool:
        """Whether a value follows from constants, shapes and integer inputs alone."""
        waiting = [name]
        while waiting:  # a stack of our own: graphs are deeper than Python's
            value = waiting[-1]
            if value in self._positional:
                waiting.pop()
                continue
            maker = self.makers.get(value)
            if value in self.tensors or maker is None:
                self._positional[value] = value in self.tensors or self.kinds.get(value) in INTEGERS
                continue
            node = self.nodes[maker]
            if node.op_type in ("Constant", "Shape", "Size"):
                self._positional[value] = True
            elif node.op_type in DATA or self._weighs(node):
                self._positional[value] = False
            else:
                unknown = [n for n in inputs_of(node) if n not in self._positional]
                if unknown:
                    waiting += unknown
                    continue
                self._positional[value] = all(self._positional[n] for n in inputs_of(node))
        return self._positional[name]

    def _weighs(self, node: Any) -> bool:
        """Whether it is a product with a matrix of weights; that with a row of frequencies is none."""
        tensors = [self.tensors[n] for n in node.input if n in self.tensors]
        return node.op_type == "MatMul" and any(len(t.dims) == 2 and min(t.dims) > 3 for t in tensors)

    def sources(self, name: str) -> dict[str, int]:
        """The values from which this one comes by moving alone, itself among them -> the index of their nodes."""
        return self._reached(name, self._moved_into)

    def targets(self, name: str) -> dict[str, int]:
        """The values that come from this one by moving alone, itself among them -> the index of their nodes."""
        return self._reached(name, self._moved_from)

    def _reached(self, name: str, further: Callable[[str], Iterable[str]]) -> dict[str, int]:
        reached: dict[str, int] = {}
        waiting = [name]
        while waiting:
            value = waiting.pop()
            if value not in reached:
                reached[value] = self.makers.get(value, -1)
                waiting += further(value)
        return reached

    def _moved_into(self, value: str) -> list[str]:
        """What its node moved to make it."""
        made_by = self.makers.get(value, -1)
        moved = _moved(self.nodes[made_by]) if made_by >= 0 else ()
        return [n for n in moved if n not in self.tensors]

    def _moved_from(self, value: str) -> list[str]:
        """What nodes that move it make of it."""
        users = (self.nodes[i] for i in self.users.get(value, []))
        return [n for node in users if value in _moved(node) for n in node.output]

    def hidden(self) -> list[Any]:
        """The nodes inside branches and loops, which are not looked into."""
        return [inner for node in self.nodes for inner in inside(node)]


def _moved(node: Any) -> Any:
    """The inputs whose elements a node puts elsewhere; none, if it does more than that."""
    if node.op_type not in MOVING:
        return ()
    return node.input if node.op_type == "Concat" else node.input[:1]


def inputs_of(node: Any) -> list[str]:
    """What a node reads, what its branches read from outside included."""
    own = [name for name in node.input if name]
    for body in _bodies(node):
        inner_names = {n for inner in body.node for n in inner.output} | {t.name for t in body.initializer}
        inner_names |= {v.name for v in body.input}
        own += [name for inner in body.node for name in inputs_of(inner) if name not in inner_names]
    return own


def tensors_of(message: Any) -> Iterator[Any]:
    """Every tensor that stands anywhere in it: in attributes, branches, loops and functions too."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for inner in (value,) if hasattr(value, "ListFields") else value:
            yield from (inner,) if inner.DESCRIPTOR.name == "TensorProto" else tensors_of(inner)


def _bodies(node: Any) -> Iterable[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def inside(node: Any) -> Iterator[Any]:
    """The nodes of its branches, and of theirs."""
    for body in _bodies(node):
        for inner in body.node:
            yield inner
            yield from inside(inner)


def _size(dim: Any) -> int | str | None:
    return dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None


def library(*more: str) -> Any:
    """The module ``onnx`` with all that is used of it; ``ValueError`` if it, or one of ``more``, is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.inliner
        import onnx.numpy_helper
        import onnx.reference
        import onnx.shape_inference

        for name in more:
            import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"ONNX needs {error.name}; install it with: pip install 'phasor-rope[onnx]'") from None
    return onnx
