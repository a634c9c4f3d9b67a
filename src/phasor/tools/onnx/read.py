"""Reading an ONNX file as data: nothing in it is run, and no file beside it is opened but those it may name."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .operators import DTYPES, NotShown

LARGEST = 2**31  # bytes: no protobuf message can be longer
MOST_NODES = 2**20  # of a graph with its functions written out: large models have some 10^5
SMALL = 64  # elements of a constant that must have its values


@dataclass(frozen=True)
class File:
    """A file as read, its functions written out, and where the values beside it lie.

    ``wide``: half precision is taken for float32, so that angles are seen and not their roundings.
    """

    model: Any
    folder: Path
    wide: bool = False

    @property
    def graph(self) -> Any:
        return self.model.graph

    @property
    def opset(self) -> int:
        imports = self.model.opset_import
        return max((entry.version for entry in imports if entry.domain in ("", "ai.onnx")), default=0)

    def kind(self, number: int) -> torch.dtype | None:
        """The type of torch for one of ONNX; None where it has none."""
        kind = DTYPES.get(number)
        return torch.float32 if self.wide and kind in (torch.float16, torch.bfloat16) else kind

    def tensor(self, proto: Any) -> Tensor:
        """The values of a constant; those in another file are mapped, so that only what is looked at is read."""
        held = self._tensor(proto)
        return held.to(self.kind(proto.data_type)) if self.wide else held

    def _tensor(self, proto: Any) -> Tensor:
        if (dtype := DTYPES.get(proto.data_type)) is None:
            raise NotShown(f"{proto.name!r} has a type that torch has not")
        if proto.data_location == library().TensorProto.EXTERNAL:
            info = {entry.key: entry.value for entry in proto.external_data}
            file, start = self.folder / info["location"], int(info.get("offset", 0))
            held = torch.from_file(str(file), False, file.stat().st_size, dtype=torch.uint8)
            held = held[start : start + int(info["length"])]
            return (held if start % dtype.itemsize == 0 else held.clone()).view(dtype).reshape(*proto.dims)
        values = library().numpy_helper.to_array(proto)
        values = values.astype(np.float32) if dtype == torch.bfloat16 else values.copy()
        return torch.from_numpy(values).to(dtype)


def library(*more: str) -> Any:
    """The module ``onnx`` with all that is used of it; ``ValueError`` if it, or one of ``more``, is not installed."""
    try:
        import onnx
        import onnx.checker
        import onnx.inliner
        import onnx.numpy_helper

        for name in more:
            import_module(name)
    except ModuleNotFoundError as error:
        raise ValueError(f"ONNX needs {error.name}; install it with: pip install 'phasor-rope[onnx]'") from None
    return onnx


def read_file(source: str | os.PathLike[str]) -> File:
    """A file, its local functions written out, or ``ValueError`` in one line."""
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
    except (RuntimeError, ValueError) as error:  # the inliner's; names that are no UTF-8
        raise ValueError(f"{path} is damaged ({_brief(error)})") from None
    _check_nodes(path, model.graph)
    return File(model, path.resolve().parent)


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


def _check_nodes(path: Path, graph: Any) -> None:
    """Each has an output, and what it reads is made before it."""
    later = {name for node in graph.node for name in node.output}
    for node in graph.node:
        for one in (node, *inside(node)):
            if not any(one.output):
                raise ValueError(f"{path} is damaged ({one.op_type} {one.name!r} has no output)")
        if early := [name for name in node.input if name in later]:
            raise ValueError(f"{path} is damaged ({early[0]!r} is read before it is made)")
        later.difference_update(node.output)


def inside(node: Any) -> Iterator[Any]:
    """The nodes of its branches, and of theirs."""
    for inner in (inner for body in bodies(node) for inner in body.node):
        yield inner
        yield from inside(inner)


def bodies(node: Any) -> Iterator[Any]:
    """The graphs that stand in it."""
    for attribute in node.attribute:
        yield from [attribute.g] if attribute.HasField("g") else attribute.graphs


def tensors_of(message: Any) -> Iterator[Any]:
    """Every tensor that stands anywhere in it: in attributes, branches, loops and functions too."""
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        for inner in (value,) if hasattr(value, "ListFields") else value:
            yield from (inner,) if inner.DESCRIPTOR.name == "TensorProto" else tensors_of(inner)


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


def _brief(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
