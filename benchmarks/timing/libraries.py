"""Other libraries on a CPU, each in its own mode: transformers, onnxruntime, and the kernels of vLLM and SGLang.

The engines' kernels come as libraries, built from single files of the engines: benchmarks/peers/README.md.
"""

import os
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from phasor import Rotation, apply_qk_norm_rotary, apply_rotary_qk

from .cases import TOKEN, WIDTH, clones, prefill, token
from .measure import Calls, Case, Variant, at_least

FOLDER = "PHASOR_PEERS"  # the variable that names the folder of the engines' libraries
OPSET = 23  # the first that has onnx's operator


def no_transformers() -> str:
    return "" if find_spec("transformers") else "transformers is not installed; pip install 'phasor-rope[hf]'"


def no_onnx() -> str:
    absent = [name for name in ("onnx", "onnxruntime") if not find_spec(name)]
    return f"{' and '.join(absent)} not installed; pip install {' '.join(absent)}" if absent else ""


def no_engine(engine: str) -> str:
    path = _library(engine)
    if not os.environ.get(FOLDER) or not path.is_file():
        return f"no {path.name} in the folder that {FOLDER} names; benchmarks/peers/README.md says how to build it"
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        return f"{path} cannot be loaded ({error.__cause__ or error}); build it again with this torch"
    return ""


def _library(engine: str) -> Path:
    return Path(os.environ.get(FOLDER, "")) / f"{engine}_rotary.so"


def transformers_function(interleaved: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """Llama's function for halves, Cohere's for neighbours."""
    if interleaved:
        from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb
    else:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    function: Callable[..., tuple[Tensor, Tensor]] = apply_rotary_pos_emb
    return function


def by_channel(table: Tensor, interleaved: bool) -> Tensor:
    """``[..., P]`` with every value twice, in the order of the pairs: ``[..., 2 P]``."""
    return table.repeat_interleave(2, -1) if interleaved else torch.cat((table, table), -1)


def _tables(variant: Variant, rotation: Rotation) -> list[Tensor]:
    """cos and sin ``[1, S, D]`` as models hand them over, in the dtype of q."""
    return [by_channel(t, variant.interleaved)[None].to(variant.dtype) for t in (rotation.cos, rotation.sin)]


def _transformers(sizes: Callable[[Variant], tuple[Tensor, Tensor, Tensor]], variant: Variant) -> Calls:
    q, k, positions = sizes(variant)
    rotation = variant.rotation(WIDTH, positions)
    return {
        "transformers": partial(transformers_function(variant.interleaved), q, k, *_tables(variant, rotation)),
        "phasor": partial(apply_rotary_qk, q, k, rotation, kernel=variant.kernel),
    }


def _norm(sizes: Callable[[Variant], tuple[Tensor, Tensor, Tensor]], variant: Variant) -> Calls:
    """Heads lie behind one another, as projections give them. Both round before the weight, as Qwen 3 does."""
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    q, k, positions = sizes(variant)
    norm = Qwen3RMSNorm(WIDTH).to(variant.dtype)
    rotation = variant.rotation(WIDTH, positions)
    cos, sin = _tables(variant, rotation)
    q, k = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k))
    if torch.is_grad_enabled():
        q, k = q.requires_grad_(), k.requires_grad_()
    weight = norm.weight if torch.is_grad_enabled() else norm.weight.detach()
    rotated = partial(transformers_function(variant.interleaved), cos=cos, sin=sin)
    fused: Any = partial(apply_qk_norm_rotary, rounding="before_weight", kernel=variant.kernel)
    return {
        "transformers": partial(_one_after_the_other, q, k, norm, rotated),
        "phasor": partial(fused, q, k, rotation, weight, weight),
    }


def _one_after_the_other(q: Tensor, k: Tensor, norm: Any, rotated: Any) -> tuple[Tensor, Tensor]:
    pair: tuple[Tensor, Tensor] = rotated(norm(q), norm(k))
    return pair


def _norm_back(variant: Variant) -> Calls:
    calls: dict[str, Any] = dict(_norm(prefill, variant))
    inputs = calls["phasor"].args[:2]
    grads = [torch.randn(x.shape, generator=torch.Generator().manual_seed(1)).to(x.dtype) for x in inputs]
    return {name: partial(_norm_gradients, call(), call.args, grads) for name, call in calls.items()}


def _norm_gradients(outputs: Any, inputs: tuple[Any, ...], grads: list[Tensor]) -> tuple[Tensor, ...]:
    """Those of q and k; that of the weight is formed as well."""
    weight = inputs[2].weight if isinstance(inputs[2], torch.nn.Module) else inputs[3]
    return torch.autograd.grad(outputs, (*inputs[:2], weight), grads, retain_graph=True)[:2]


def _onnx(variant: Variant) -> Calls:
    """By positions and tables, into outputs bound to the session."""
    q, k, positions = prefill(variant)
    rotation = variant.rotation(WIDTH, positions)
    out = clones(q, k)
    inputs = {
        "q": q, "k": k, "cos": rotation.cos.to(variant.dtype), "sin": rotation.sin.to(variant.dtype),
        "positions": positions[None],
    }  # fmt: skip
    session, binding = _bound(inputs, out, variant)
    return {
        "onnxruntime": lambda: (session.run_with_iobinding(binding), out)[1],
        "phasor": partial(apply_rotary_qk, q, k, rotation, kernel=variant.kernel, out=clones(q, k)),
    }


def _bound(inputs: dict[str, Tensor], out: tuple[Tensor, Tensor], variant: Variant) -> tuple[Any, Any]:
    """A session that rotates q and k, and a binding to exactly these tensors, which must outlive it."""
    import numpy
    import onnxruntime  # type: ignore[import-untyped, import-not-found]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = variant.threads
    session = onnxruntime.InferenceSession(_graph(variant), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    kind = {torch.float32: numpy.float32, torch.float16: numpy.float16, torch.int64: numpy.int64}
    for name, x in inputs.items():
        binding.bind_input(name, "cpu", 0, kind[x.dtype], tuple(x.shape), x.data_ptr())
    for name, y in zip(("q_rotated", "k_rotated"), out, strict=True):
        binding.bind_output(name, "cpu", 0, kind[y.dtype], tuple(y.shape), y.data_ptr())
    binding.kept = (inputs, out)  # it holds addresses only
    return session, binding


def _graph(variant: Variant) -> bytes:
    """A model of two nodes, one for q and one for k."""
    from onnx import TensorProto, helper

    kind = TensorProto.FLOAT if variant.dtype == torch.float32 else TensorProto.FLOAT16
    tables: dict[str, list[str | int | None]] = {"cos": ["T", "P"], "sin": ["T", "P"]}
    heads: dict[str, list[str | int | None]] = {"q": ["B", "H", "S", WIDTH], "k": ["B", "G", "S", WIDTH]}
    floats = [helper.make_tensor_value_info(name, kind, shape) for name, shape in (heads | tables).items()]
    positions = helper.make_tensor_value_info("positions", TensorProto.INT64, ["B", "S"])
    outputs = [helper.make_tensor_value_info(f"{name}_rotated", kind, shape) for name, shape in heads.items()]
    interleaved = int(variant.interleaved)
    nodes = [
        helper.make_node(
            "RotaryEmbedding", [name, "cos", "sin", "positions"], [f"{name}_rotated"], interleaved=interleaved
        )
        for name in heads
    ]
    graph = helper.make_graph(nodes, "rotary", [*floats, positions], outputs)
    opsets = [helper.make_opsetid("", OPSET)]
    model: bytes = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    return model


def _engine(engine: str, variant: Variant) -> Calls:
    """In place, tokens in front, by a table of positions."""
    q, k, positions = prefill(variant)
    rotation = variant.rotation(WIDTH, positions)
    table = torch.cat((rotation.cos, rotation.sin), -1).to(variant.dtype)
    q, k = (x[0].transpose(0, 1).flatten(1) for x in (q, k))  # [tokens, heads * head_dim]
    theirs, ours = clones(q, k), clones(q, k)
    options: Any = {"tensor_format": "thd", "num_heads": 32, "kernel": variant.kernel, "out": ours}
    torch.ops.load_library(str(_library(engine)))
    kernel = getattr(torch.ops, f"peers_{engine}").rotary_embedding
    return {
        engine: lambda: (kernel(positions, *theirs, WIDTH, table, not variant.interleaved), theirs)[1],
        "phasor": partial(apply_rotary_qk, *ours, rotation, **options),
    }


def _engine_case(engine: str, title: str, dtypes: tuple[str, ...]) -> Case:
    about = (
        f"{title}'s CPU kernel, in place on q [4096, 32 * {WIDTH}] and k [4096, 8 * {WIDTH}], by a table in their "
        "dtype, in units of `apply_rotary_qk` in place on the same"
    )
    return Case(
        engine, about, partial(_engine, engine), measured=engine, unit="phasor", goals=at_least(1), dtypes=dtypes,
        large=True, obstacle=partial(no_engine, engine),
    )  # fmt: skip


_BY_TRANSFORMERS: Any = partial(Case, measured="transformers", unit="phasor", obstacle=no_transformers)
LIBRARIES: tuple[Case, ...] = (
    _BY_TRANSFORMERS(
        "transformers",
        "transformers' `apply_rotary_pos_emb` (Llama's; Cohere's for interleaved pairs) at the sizes of `prefill`, by "
        "tables that exist, in units of `apply_rotary_qk`",
        partial(_transformers, prefill), goals=at_least(4.5), large=True,
    ),
    _BY_TRANSFORMERS(
        "transformers-token", f"the same for {TOKEN}",
        partial(_transformers, token), goals=at_least(6), repeat=200,
    ),
    _BY_TRANSFORMERS(
        "norm",
        "transformers' `Qwen3RMSNorm` and `apply_rotary_pos_emb` one after the other at the sizes of `prefill`, by "
        "tables that exist, in units of `apply_qk_norm_rotary`",
        partial(_norm, prefill), goals=at_least(3), large=True,
    ),
    _BY_TRANSFORMERS(
        "norm-back", "the backward passes of both, to the gradients of q, k and the weight",
        _norm_back, goals=at_least(2), large=True, gradient=True,
    ),
    _BY_TRANSFORMERS("norm-token", f"`norm` for {TOKEN}", partial(_norm, token), goals=at_least(3), repeat=200),
    Case(
        "onnxruntime",
        "onnxruntime's RotaryEmbedding (opset 23, one session for q and k, inputs and outputs bound) at the sizes of "
        "`prefill`, in units of `apply_rotary_qk` into outputs that exist; it has no bfloat16",
        _onnx, measured="onnxruntime", unit="phasor", goals=at_least(1.5), dtypes=("float32", "float16"), large=True,
        obstacle=no_onnx,
    ),
    _engine_case("vllm", "vLLM", ("float32", "bfloat16", "float16")),
    _engine_case("sglang", "SGLang", ("bfloat16", "float16")),
)  # fmt: skip
