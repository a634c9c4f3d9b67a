"""A part of a graph, run by ONNX's own reference on given values: tables and rotations, never weights."""

import math
from typing import Any

import numpy as np

from .graph import Graph, inputs_of, library, tensors_of
from .operators import operators
from .shapes import Sizes, cut

MOST = 5000  # nodes of one part: the tables of a model take some fifty
BIGGEST = 2**27  # elements that one value of such a part may have


class NotShown(Exception):
    """Why a part of a graph could not be read, as a clause."""


def part_of(graph: Graph, wanted: str, feeds: set[str], sizes: Sizes) -> tuple[list[int], set[str], dict[str, Any]]:
    """What ``wanted`` needs, beginning from ``feeds``: nodes, inputs of the graph, and shapes that are known anyway."""
    nodes: set[int] = set()
    needed: set[str] = set()
    known: dict[str, Any] = {}
    waiting = [wanted]
    while waiting:
        name = waiting.pop()
        maker = graph.makers.get(name)
        if name in feeds or name in graph.tensors or name in known or maker in nodes:
            continue
        if maker is None:
            needed.add(name)
            continue
        node = graph.nodes[maker]
        shape = sizes.of(node.input[0]) if node.op_type == "Shape" else None
        if shape is not None and node.input[0] not in feeds:  # so that the data behind it is not needed
            known[name] = cut(shape, node)
            continue
        nodes.add(maker)
        waiting += inputs_of(node)
        if len(nodes) > MOST:
            raise NotShown(f"it depends on more than {MOST:,} nodes")
    return sorted(nodes), needed, known


def run(graph: Graph, wanted: str, feeds: dict[str, np.ndarray], sizes: Sizes) -> np.ndarray:
    """The value ``wanted``, from those that are given; `NotShown` where it needs more, or does not run."""
    nodes, needed, known = part_of(graph, wanted, set(feeds), sizes)
    if needed:
        raise NotShown(f"it depends on the input {sorted(needed)[0]!r}")
    onnx = library()
    values = {**known, **feeds}
    read = {name for i in nodes for name in inputs_of(graph.nodes[i])} | {wanted}
    large = [n for n in read if n in graph.tensors and np.prod(graph.tensors[n].dims, dtype=float) > BIGGEST]
    shapes = [(name, sizes.of(name)) for i in nodes for name in graph.nodes[i].output]
    large += [name for name, shape in shapes if np.prod(shape or (), dtype=float) > BIGGEST]
    if large:
        raise NotShown(f"{large[0]!r} is too large for a table")
    if loops := [graph.nodes[i].op_type for i in nodes if graph.nodes[i].op_type in ("Loop", "Scan")]:
        raise NotShown(f"it depends on a {loops[0]}, whose number of steps is not known")
    try:
        constants = {name: graph.array(name) for name in read if name in graph.tensors}
        if wanted in constants:
            return constants[wanted]
        helper = onnx.helper
        inputs = [helper.make_tensor_value_info(n, onnx.TensorProto.UNDEFINED, None) for n in (*values, *constants)]
        outputs = [helper.make_tensor_value_info(wanted, onnx.TensorProto.UNDEFINED, None)]
        body = [
            _whole(graph, graph.nodes[i])
            for i in nodes
            if graph.nodes[i].op_type != "Constant" or graph.nodes[i].output[0] not in constants
        ]
        whole = helper.make_graph(body, "part", inputs, outputs)
        model = helper.make_model(whole, opset_imports=graph.opsets, ir_version=graph.ir_version)
        with np.errstate(all="ignore"):
            results = onnx.reference.ReferenceEvaluator(model, new_ops=operators()).run(None, {**values, **constants})
    except Exception as error:  # whatever a damaged or odd part does, it says nothing about the others
        words = " ".join(f"{type(error).__name__}: {error}".split())
        raise NotShown(f"it does not run ({words[:160]})") from None
    return np.asarray(results[0])


def _whole(graph: Graph, node: Any) -> Any:
    """The node with what its branches keep in other files, which the reference does not look for."""
    onnx = library()
    if all(tensor.data_location != onnx.TensorProto.EXTERNAL for tensor in tensors_of(node)):
        return node
    whole = onnx.NodeProto()
    whole.CopyFrom(node)
    for tensor in tensors_of(whole):
        if math.prod(tensor.dims) > BIGGEST:
            raise ValueError(f"{tensor.name!r} is too large for a table")
        tensor.CopyFrom(
            onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor, str(graph.folder)), tensor.name)
        )
    return whole
