"""Reading an ONNX file as data: nothing in it is run, and no file beside it is opened but those it may name."""

import math
import os
from functools import cache
from pathlib import Path
from typing import Any

from .graph import Graph, inside, library, tensors_of
from .operators import rotations_of
from .shapes import SMALL

LARGEST = 2**31  # bytes: no protobuf message can be longer
MOST_NODES = 2**20  # of a graph with its functions written out: large models have some 10^5
INLINE = 2**16  # elements of a constant that shape inference may want to look at


def read_graph(source: str | os.PathLike[str]) -> Graph:
    """The graph of a file, its local functions written out, or ``ValueError`` in one line."""
    path = Path(source)
    if not path.is_file():
        raise ValueError(f"the ONNX file must exist, got {str(source)!r}, which is absent or a folder")
    if path.stat().st_size >= LARGEST:
        raise ValueError(
            f"{path} is longer than 2 GiB, which no ONNX file can be; its weights belong in files beside it"
        )
    onnx = library()
    from google.protobuf.message import DecodeError  # onnx brings it

    model = onnx.ModelProto()
    try:
        model.ParseFromString(path.read_bytes())
    except DecodeError as error:
        raise ValueError(f"{path} is not an ONNX file, or is damaged ({_brief(error)})") from None
    if not model.graph.node or not model.opset_import:
        raise ValueError(f"{path} is not an ONNX file, or is damaged (it holds no graph with nodes and opsets)")
    for tensor in tensors_of(model):
        _check_values(onnx, path, tensor)
    try:
        if model.functions:
            _check_functions(model)
            model = onnx.inliner.inline_local_functions(model)
        _check_outputs(model.graph)
        _split_off_rotations(model)
        return Graph(model, path.resolve().parent, _with_shapes(onnx, model))
    except (RuntimeError, ValueError) as error:  # the inliner's and the graph's; names that are no UTF-8
        raise ValueError(f"{path} is damaged ({_brief(error)})") from None


def _check_functions(model: Any) -> None:
    """Each may call another twice, and that one another: written out, thirty are a thousand million nodes."""
    bodies = {(function.domain, function.name): function.node for function in model.functions}

    @cache
    def size(domain: str, name: str) -> int:
        return 1 + total(bodies.get((domain, name), ()))

    def total(nodes: Any) -> int:
        return sum(size(one.domain, one.op_type) for node in nodes for one in (node, *inside(node)))

    try:
        count = total(model.graph.node)
    except RecursionError:
        raise ValueError("its functions call each other without end") from None
    if count > MOST_NODES:
        raise ValueError(f"its functions, written out, are {count:,} nodes, and at most {MOST_NODES:,} are read")


def _check_outputs(graph: Any) -> None:
    for node in graph.node:
        for one in (node, *inside(node)):
            if not any(one.output):
                raise ValueError(f"{one.op_type} {one.name!r} has no output")


def _split_off_rotations(model: Any) -> None:
    """The rotations inside of attention operators as nodes of their own, in front of them."""
    nodes = list(model.graph.node)
    del model.graph.node[:]
    for node in nodes:
        if node.op_type == "GroupQueryAttention" and any(a.name == "do_rotary" and a.i for a in node.attribute):
            model.graph.node.extend(rotations_of(node))
            node.attribute.remove(next(a for a in node.attribute if a.name == "do_rotary"))
        model.graph.node.append(node)
    if "com.microsoft" not in {entry.domain for entry in model.opset_import}:
        model.opset_import.add(domain="com.microsoft", version=1)


def _check_values(onnx: Any, path: Path, tensor: Any) -> None:
    """A tensor must have the values that its sizes and type need; those in another file must lie beside this one."""
    count, packed = math.prod(tensor.dims), {"INT4": 2, "UINT4": 2, "FLOAT4E2M1": 2, "INT2": 4, "UINT2": 4}
    if any(size < 0 for size in tensor.dims):
        raise ValueError(f"{path}: {tensor.name!r} must have sizes of at least 0, got {list(tensor.dims)}")
    try:
        kind = onnx.TensorProto.DataType.Name(tensor.data_type)
        width = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        field = getattr(tensor, onnx.helper.tensor_dtype_to_field(tensor.data_type))
    except (KeyError, TypeError, ValueError):  # a type that nobody knows: its values are not read
        kind, width, field = "STRING", 0, ()
    needed = -(-count * width // packed.get(kind, 1)) if kind != "STRING" else None
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        held = _external(path, tensor, needed)
    elif tensor.HasField("raw_data"):
        held = len(tensor.raw_data)
    elif kind.startswith("COMPLEX") or kind in packed or (not field and count > SMALL):  # weights may be left out
        return
    else:
        needed, held = count * width, len(field) * width
    if needed is not None and held != needed:
        raise ValueError(
            f"{path}: {tensor.name!r} must have {needed} bytes, {count} values of {kind}, got {held}; export it anew"
        )


def _external(path: Path, tensor: Any, needed: int | None) -> int:
    """How many bytes of its file a tensor takes: those it needs, where the file does not say."""
    info = {entry.key: entry.value for entry in tensor.external_data}
    place, folder = info.get("location", ""), path.resolve().parent
    file = (folder / place).resolve()
    if not place or Path(place).is_absolute() or not file.is_relative_to(folder):
        raise ValueError(
            f"{path} keeps {tensor.name!r} in {place!r}, which is not in its folder; nothing else is opened"
        )
    if not file.is_file():
        raise ValueError(f"{path} keeps {tensor.name!r} in {place!r}, which is absent; put that file beside it")
    try:
        start, length = int(info.get("offset", 0)), int(info.get("length", 0))
    except ValueError:
        start, length = -1, 0
    if "length" not in info and needed is not None:  # onnx would read the rest of the file
        length = needed
        tensor.external_data.add(key="length", value=str(length))
    if start < 0 or length < 0 or start + length > file.stat().st_size:
        raise ValueError(f"{path} keeps {tensor.name!r} beyond the end of {place!r}; one of the two files is cut short")
    return length


def _with_shapes(onnx: Any, model: Any) -> Any:
    """The graph with the shapes that can be inferred, large constants left out; the graph as it is where that fails.

    Values are not carried from node to node: onnx writes out all of them, and a Range has as many as its file says.
    """
    light = onnx.ModelProto()
    light.CopyFrom(model)
    large = [t for t in light.graph.initializer if math.prod(t.dims) > INLINE]
    for tensor in large:
        light.graph.initializer.remove(tensor)
        light.graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    try:
        return onnx.shape_inference.infer_shapes(light).graph
    except (onnx.shape_inference.InferenceError, RuntimeError, ValueError):  # what it would have told is then unknown
        return model.graph


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
