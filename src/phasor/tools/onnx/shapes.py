"""Numbers for the free sizes of a graph, and with them the shapes of its values, node by node; weights are not read."""

import math
import re
from typing import Any

import numpy as np

from .graph import FLOATS, Graph, inputs_of, library

CALLED = re.compile("seq|len|tok")
SMALL = 64  # elements of a value that may say sizes
COUNTS = (1, 6, 7, 9, 11)  # what such a value is made of: float, int32, int64, bool, double in TensorProto.DataType

Shape = tuple[int, ...]


class Sizes:
    """A number for every free size of a graph: ``tokens`` for the sequence, 1 for the batch (2 for the size called
    ``pair``), 0 for what was before.

    Of tokens are the last sizes of integer inputs, first of all of those with a batch; where there are none, sizes that
    are called so; else the second size of inputs with three. Before them were the tokens of inputs with four axes, the
    caches of k and v, where these have sizes of their own. All others are batches.
    """

    def __init__(self, graph: Graph, tokens: int, pair: str | None = None) -> None:
        inputs = [(graph.kinds.get(n), graph.shapes.get(n) or ()) for n in graph.inputs]
        integers = [shape for kind, shape in inputs if kind in (6, 7) and shape]
        batched = [shape[-1] for shape in integers if len(shape) > 1]
        alone = [shape[-1] for shape in integers if "batch" not in str(shape[-1]) and shape[-1] != 1]
        called = [size for _, shape in inputs for size in shape if isinstance(size, str) and CALLED.search(size)]
        of_tokens = set(batched or alone or called or [shape[1] for _, shape in inputs if len(shape) == 3])
        names = {n for n in of_tokens if isinstance(n, str)}
        caches = [s for kind, s in inputs if kind in FLOATS and len(s) == 4 and not isinstance(s[-1], str)]
        self.before = {n for s in caches for n in s[1:3] if isinstance(n, str)} - names
        self.names = {n for name in names for n in re.split(r"[ +]+", name) if not n.isdigit()} - self.before
        fixed = [n for n in of_tokens if isinstance(n, int)]
        self.tokens = tokens if names or not fixed else max(fixed)
        self.known = {n for _, shape in inputs for size in shape for n in re.split(r"[ +]+", str(size))}
        self.graph, self.pair = graph, pair

    def of(self, name: str) -> Shape | None:
        """The shape of a value; None where it cannot be told."""
        key = self.tokens, self.pair
        if key not in self.graph.sized:
            self.graph.sized[key] = _shapes(self.graph, self)
        return self.graph.sized[key].get(name)

    def numbers(self, name: str) -> list[int | None] | None:
        """The sizes that the file names for a value, as far as they are known; None where it names none."""
        sizes = self.graph.shapes.get(name)
        return None if sizes is None else [self._number(size) for size in sizes]

    def _number(self, size: int | str | None) -> int | None:
        if size is None or isinstance(size, int):
            return size
        if not re.fullmatch(r"[\w.]+( *\+ *[\w.]+)*", size):
            return None
        parts = [self._one(part.strip()) for part in size.split("+")]
        return None if None in parts else sum(parts)  # type: ignore[arg-type]

    def _one(self, name: str) -> int | None:
        if name.isdigit():
            return int(name)
        if "past" in name.lower() or name in self.before:
            return 0
        if name in self.names:
            return self.tokens
        if name == self.pair:
            return 2
        return 1 if name in self.known or "batch" in name.lower() else None


def _shapes(graph: Graph, sizes: Sizes) -> dict[str, Shape]:
    """Of all values whose shape follows from those of the inputs, or is named by sizes of the inputs."""
    onnx = library()
    types: dict[str, Any] = {}
    values = {n: graph.array(n) for n, t in graph.tensors.items() if t.data_type in COUNTS and _few(t.dims)}
    for name in graph.inputs:
        types[name] = _type(graph, name, sizes.numbers(name))
    for name, tensor in graph.tensors.items():
        types[name] = onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
    for node in graph.nodes:
        inferred = _inferred(graph, node, types, values)
        for name in node.output:
            if name not in types:
                types[name] = _type(graph, name, sizes.numbers(name), inferred.get(name))
        _count(graph, node, types, values)
    return {name: shape for name, of in types.items() if (shape := _whole(of)) is not None}


def _type(graph: Graph, name: str, named: list[int | None] | None, inferred_type: Any = None) -> Any:
    """The type of a value: what was found by its node, and where that knows no size, the one that is named."""
    of = getattr(inferred_type, "tensor_type", None)
    kind = graph.kinds.get(name) or (of.elem_type if of is not None else 0) or 1
    inferred = [d.dim_value if d.HasField("dim_value") else None for d in of.shape.dim] if of is not None else None
    if of is None or not of.HasField("shape"):
        inferred = None
    if inferred is not None and named is not None and len(named) == len(inferred):
        inferred = [b if a is None else a for a, b in zip(inferred, named, strict=True)]
    return library().helper.make_tensor_type_proto(kind, named if inferred is None else inferred)


def _inferred(graph: Graph, node: Any, types: dict[str, Any], values: dict[str, np.ndarray]) -> dict[str, Any]:
    onnx = library()
    version = next((entry.version for entry in graph.opsets if entry.domain == node.domain), 1)
    input_types = {n: types[n] for n in node.input if n in types}
    if any(n not in input_types for n in inputs_of(node)) or any(a.HasField("g") for a in node.attribute):
        return {}
    data = {n: onnx.numpy_helper.from_array(values[n]) for n in node.input if n in values}
    try:
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        inferred: dict[str, Any] = onnx.shape_inference.infer_node_outputs(
            schema, node, input_types, data, opset_imports=graph.opsets, ir_version=graph.ir_version
        )
    except Exception:  # operators of others, and what fits nothing: it is not known then
        return {}
    return inferred


def _count(graph: Graph, node: Any, types: dict[str, Any], values: dict[str, np.ndarray]) -> None:
    """Adds the value that a node makes, where it follows from sizes and is small."""
    if len(node.output) != 1 or node.domain not in ("", "ai.onnx") or not inputs_of(node):
        return
    (name,), shape = node.output, _whole(types[node.output[0]])
    if node.op_type == "Shape":
        if (of := _whole(types[node.input[0]])) is not None:
            values[name] = cut(of, node)
    elif shape is not None and _few(shape) and all(n in values for n in inputs_of(node)):
        try:
            results = library().reference.ReferenceEvaluator(node).run(None, {n: values[n] for n in inputs_of(node)})
        except Exception:  # then nobody knows it
            return
        values[name] = np.asarray(results[0])


def cut(shape: Shape, node: Any) -> np.ndarray:
    """What a node Shape gives of it."""
    marks = {a.name: a.i for a in node.attribute}
    return np.array(shape[marks.get("start", 0) : marks.get("end", len(shape))], dtype=np.int64)


def _few(shape: Any) -> bool:
    return math.prod(shape) <= SMALL


def _whole(of: Any) -> Shape | None:
    shape = of.tensor_type.shape
    if not of.tensor_type.HasField("shape") or not all(d.HasField("dim_value") for d in shape.dim):
        return None
    return tuple(d.dim_value for d in shape.dim)
