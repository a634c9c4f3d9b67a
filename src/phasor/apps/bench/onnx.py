"""onnxruntime's RotaryEmbedding, in its own mode: by positions and tables, into outputs bound to the session."""

from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from ...rotary.apply import apply_rotary_qk
from .case import Case, Setting, at_least
from .large import WIDTH, clones, prefill
from .race import Calls

OPSET = 23  # the first that has the operator


def missing() -> str:
    absent = [name for name in ("onnx", "onnxruntime") if not find_spec(name)]
    return f"{' and '.join(absent)} not installed; pip install {' '.join(absent)}" if absent else ""


def _beside(setting: Setting) -> Calls:
    q, k, positions = prefill(setting)
    rotation = setting.rotation(WIDTH, positions)
    tables = rotation.cos.to(setting.dtype), rotation.sin.to(setting.dtype)
    out = clones(q, k)
    session, binding = _bound(q, k, *tables, positions[None], out, setting)
    return {
        "onnxruntime": partial(_run, session, binding, out),
        "phasor": partial(apply_rotary_qk, q, k, rotation, kernel=setting.kernel, out=clones(q, k)),
    }


def _run(session: Any, binding: Any, out: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    session.run_with_iobinding(binding)
    return out


def _bound(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, positions: Tensor, out: tuple[Tensor, Tensor], setting: Setting
) -> tuple[Any, Any]:
    """A session that turns q and k, and a binding to exactly these tensors, which must outlive it."""
    import numpy
    import onnxruntime  # type: ignore[import-untyped, import-not-found]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = setting.threads
    session = onnxruntime.InferenceSession(_graph(setting), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    kind = {torch.float32: numpy.float32, torch.float16: numpy.float16, torch.int64: numpy.int64}
    inputs = {"q": q, "k": k, "cos": cos, "sin": sin, "positions": positions}
    for name, x in inputs.items():
        binding.bind_input(name, "cpu", 0, kind[x.dtype], tuple(x.shape), x.data_ptr())
    for name, y in zip(("q_turned", "k_turned"), out, strict=True):
        binding.bind_output(name, "cpu", 0, kind[y.dtype], tuple(y.shape), y.data_ptr())
    binding.kept = (inputs, out)  # it holds addresses only
    return session, binding


def _graph(setting: Setting) -> bytes:
    """A model of two nodes, one for q and one for k."""
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT if setting.dtype == torch.float32 else TensorProto.FLOAT16
    tables: dict[str, list[str | int | None]] = {"cos": ["T", "P"], "sin": ["T", "P"]}
    heads: dict[str, list[str | int | None]] = {"q": ["B", "H", "S", WIDTH], "k": ["B", "G", "S", WIDTH]}
    floats = [helper.make_tensor_value_info(name, kind, shape) for name, shape in (heads | tables).items()]
    places = helper.make_tensor_value_info("positions", TensorProto.INT64, ["B", "S"])
    outputs = [helper.make_tensor_value_info(f"{name}_rotateed", kind, shape) for name, shape in heads.items()]
    nodes = [
        helper.make_node(
            "RotaryEmbedding",
            [name, "cos", "sin", "positions"],
            [f"{name}_rotateed"],
            interleaved=int(setting.interleaved),
        )
        for name in heads
    ]
    whole = helper.make_graph(nodes, "rotary", [*floats, places], outputs)
    opsets = [helper.make_opsetid("", OPSET)]
    made: bytes = helper.make_model(whole, opset_imports=opsets, ir_version=10).SerializeToString()
    return made


ONNX = (
    Case(
        "onnxruntime",
        "onnxruntime's RotaryEmbedding (opset 23, one session for q and k, inputs and outputs bound) at the sizes of "
        "`prefill`, in units of `apply_rotary_qk` into outputs that exist; it has no bfloat16",
        _beside,
        measured="onnxruntime",
        unit="phasor",
        goals=at_least(1.5),
        dtypes=("float32", "float16"),
        large=True,
        why_not=missing,
    ),
)
