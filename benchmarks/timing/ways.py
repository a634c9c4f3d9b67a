"""What is timed: phasor's calls by name, and what they are measured against: copies, and other libraries' functions."""

import os
from collections.abc import Callable
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from phasor import Rotation, apply_qk_norm_rotary, apply_rotary_qk, apply_rotary_qkv, rotate

from .llama import three
from .measure import COPY, Calls, Work

Pair: TypeAlias = tuple[Tensor, Tensor]
Call: TypeAlias = Callable[[], Any]
FOLDER = "PHASOR_PEERS"  # the variable that names the folder of the engines' libraries


def clones(q: Tensor, k: Tensor) -> Pair:
    return q.clone(), k.clone()


def copies(work: Work) -> Call:
    """A call that copies q and k into tensors that exist."""
    (q, k), (y, z) = (x := [t.detach() for t in work.pair]), clones(*x)
    return lambda: (y.copy_(q), z.copy_(k))


def backward(call: Call, inputs: Pair) -> Call:
    """Forward and backward, to the gradients of what goes in; a gradient lies in memory as its result does."""
    gradients = [torch.randn_like(y) for y in call()]
    return lambda: torch.autograd.grad(call(), inputs, gradients)


def _rotate(work: Work, out: Pair | None = None) -> Call:
    return partial(rotate, *work.pair, work.positions, work.spec, kernel=work.kernel, out=out)


def _apply(work: Work, **options: Any) -> Call:
    return partial(apply_rotary_qk, *work.pair, work.rotation, kernel=work.kernel, **options)


def _in_place(work: Work) -> Call:
    here = clones(*work.pair)
    return partial(apply_rotary_qk, *here, work.rotation, kernel=work.kernel, out=here)


def _rotate_in_place(work: Work) -> Call:
    here = clones(*work.pair)
    return partial(rotate, *here, work.positions, work.spec, kernel=work.kernel, out=here)


def _decoding(work: Work) -> Call:
    """By the next positions at every call: decoding has new ones at every step, which nothing may keep."""
    positions = cycle([work.positions + n for n in range(64)])
    return lambda: rotate(*work.pair, next(positions), work.spec, kernel=work.kernel)


def _rounded(work: Work) -> Call:
    spec = work.spec.replace(angles="float32", tables="activation")
    rotation, out = Rotation.at(spec, work.positions, dtype=work.dtype), clones(*work.pair)
    return partial(apply_rotary_qk, *work.pair, rotation, kernel=work.kernel, out=out)


def _flat(work: Work) -> Call:
    q, k = (x.transpose(1, 2).flatten(-2).contiguous() for x in work.pair)
    heads: Any = {"tensor_format": "bshd", "num_heads": work.shape[1]}
    return partial(apply_rotary_qk, q, k, work.rotation, kernel=work.kernel, **heads)


def _packed(work: Work) -> Call:
    q, k = work.pair
    qkv = torch.cat((q, k, k), dim=1).transpose(1, 2).contiguous()
    return partial(apply_rotary_qkv, qkv, work.rotation, num_heads=work.shape[1], out=qkv, kernel=work.kernel)


def _tokens(work: Work) -> Pair:
    """q and k ``[tokens, heads * channels]`` of their own, as engines keep them."""
    q, k = (x.detach().transpose(1, 2).flatten(0, 1).flatten(1).clone() for x in work.pair)
    return q, k


def _ours_on_tokens(work: Work) -> Call:
    here = _tokens(work)
    options: Any = {"tensor_format": "thd", "num_heads": work.shape[1], "out": here}
    return partial(apply_rotary_qk, *here, work.rotation, kernel=work.kernel, **options)


def _backward_of(make: Callable[[Work], Call]) -> Callable[[Work], Call]:
    return lambda work: backward(make(work), work.pair)


def transformers_function(work: Work) -> Callable[..., Pair]:
    """Llama's function for halves, Cohere's for neighbours."""
    if work.interleaved:
        from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb
    else:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    function: Callable[..., Pair] = apply_rotary_pos_emb
    return function


def model_tables(work: Work) -> list[Tensor]:
    """cos and sin ``[batch or 1, tokens, channels]`` as models hand them over, in the dtype of q."""
    tables = work.rotation.cos, work.rotation.sin
    wide = [t.repeat_interleave(2, -1) if work.interleaved else torch.cat((t, t), -1) for t in tables]
    return [(t if t.ndim == 3 else t[None]).to(work.dtype) for t in wide]


def transformers(work: Work) -> Call:
    """Their function; where channels pass, by slices and ``cat`` as models do."""
    function, tables, (q, k) = transformers_function(work), model_tables(work), work.pair
    turned = work.spec.rotary_dim
    if turned == work.shape[-1]:
        return partial(function, q, k, *tables)

    def partly() -> Pair:
        y, z = function(q[..., :turned], k[..., :turned], *tables)
        return torch.cat((y, q[..., turned:]), -1), torch.cat((z, k[..., turned:]), -1)

    return partly


def _norm(work: Work) -> dict[str, tuple[Call, tuple[Tensor, ...]]]:
    """Both ways with what they learn. Heads lie behind one another, as projections give them; both round before the
    weight, as Qwen 3 does."""
    from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm

    norm = Qwen3RMSNorm(work.shape[-1]).to(work.dtype).requires_grad_(work.case.gradient)
    q, k = (x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in work.pair)
    inputs = *(x.requires_grad_(work.case.gradient) for x in (q, k)), norm.weight
    function, (cos, sin) = transformers_function(work), model_tables(work)
    ours: Any = partial(apply_qk_norm_rotary, q, k, work.rotation, norm.weight, norm.weight)
    return {
        "transformers": (lambda: function(norm(q), norm(k), cos, sin), inputs),
        "phasor": (partial(ours, rounding="before_weight", kernel=work.kernel), inputs),
    }


def norm(work: Work) -> Calls:
    return {name: call for name, (call, _) in _norm(work).items()}


def norm_backward(work: Work) -> Calls:
    """The backward passes alone."""
    source = torch.Generator().manual_seed(1)
    gradients = [torch.randn(x.shape, generator=source).to(x.dtype) for x in work.pair]
    return {
        name: partial(torch.autograd.grad, call(), inputs, gradients, retain_graph=True)
        for name, (call, inputs) in _norm(work).items()
    }


def _onnxruntime(work: Work) -> Call:
    """One session for q and k, by positions and tables, bound to exactly these tensors."""
    import onnxruntime  # type: ignore[import-untyped, import-not-found]
    from onnx import parser

    kind = {torch.float32: "float", torch.float16: "float16"}[work.dtype]
    y, z = (f"RotaryEmbedding<interleaved={int(work.interleaved)}>({x}, cos, sin, positions)" for x in "qk")
    (q, k), out = work.pair, clones(*work.pair)
    model = parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 23]> rotary ({kind}[B, H, S, D] q, {kind}[B, G, S, D] k, '
        f"{kind}[T, P] cos, {kind}[T, P] sin, int64[B, S] positions) => "
        f"({kind}[B, H, S, D] y, {kind}[B, G, S, D] z) {{ y = {y} z = {z} }}"
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = work.threads
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    cos, sin = work.rotation.cos.to(work.dtype), work.rotation.sin.to(work.dtype)
    inputs = {"q": q, "k": k, "cos": cos, "sin": sin, "positions": work.positions[None]}
    for bind, tensors in ((binding.bind_input, inputs), (binding.bind_output, dict(zip("yz", out, strict=True)))):
        for name, x in tensors.items():
            bind(name, "cpu", 0, x.numpy().dtype.type, tuple(x.shape), x.data_ptr())
    binding.kept = (inputs, out)  # it holds addresses only
    return lambda: (session.run_with_iobinding(binding), out)[1]


def _engine(engine: str, work: Work) -> Call:
    """In place, tokens in front, by a table of positions."""
    theirs, width = _tokens(work), work.shape[-1]
    table = torch.cat((work.rotation.cos, work.rotation.sin), -1).to(work.dtype)
    torch.ops.load_library(str(_library(engine)))
    kernel = getattr(torch.ops, f"peers_{engine}").rotary_embedding
    return lambda: (kernel(work.positions, *theirs, width, table, not work.interleaved), theirs)[1]


def _library(engine: str) -> Path:
    return Path(os.environ.get(FOLDER, "")) / f"{engine}_rotary.so"


def no_engine(engine: str) -> str:
    path = _library(engine)
    if not os.environ.get(FOLDER) or not path.is_file():
        return f"no {path.name} in the folder that {FOLDER} names; benchmarks/peers/README.md says how to build it"
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        return f"{path} cannot be loaded ({error.__cause__ or error}); build it again with this torch"
    return ""


OURS: dict[str, Callable[[Work], Call]] = {
    "rotate": _rotate,
    "rotate out": lambda work: _rotate(work, clones(*work.pair)),
    "rotate in place": _rotate_in_place,
    "rotate by the next positions": _decoding,
    "apply": _apply,
    "apply out": lambda work: _apply(work, out=clones(*work.pair)),
    "apply in place": _in_place,
    "apply rounded": _rounded,
    "apply to flat heads": _flat,
    "apply to a packed projection": _packed,
    "apply to tokens in place": _ours_on_tokens,
    "apply and back": _backward_of(_apply),
    "rotate and back": _backward_of(_rotate),
}
OTHERS: dict[str, Callable[[Work], Call]] = {
    "clone": lambda work: partial(clones, *work.pair),
    "two clones": lambda work: partial(clones, *work.pair),
    COPY: copies,
    "x * 1.0": _backward_of(lambda work: lambda: tuple(x * 1.0 for x in work.pair)),
    "transformers": transformers,
    "onnxruntime": _onnxruntime,
    "vllm": partial(_engine, "vllm"),
    "sglang": partial(_engine, "sglang"),
}
WHOLE: dict[str, Callable[[Work], Calls]] = {"norm": norm, "norm, backwards": norm_backward, "llama": three}


def calls(work: Work) -> Calls:
    """What a case races: phasor's call, and its unit or the peer that is measured."""
    case = work.case
    if case.call in WHOLE:
        return WHOLE[case.call](work)
    other = case.unit if case.measured == "phasor" else case.measured
    return {"phasor": OURS[case.call](work), other: OTHERS[other](work)}
