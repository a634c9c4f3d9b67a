"""warm_up: what a GPU needs of a spec before the first token is served."""

import torch

from ...support.checks import whole
from ..kernels.triton import kernel as triton
from ..rotation import Rotation
from ..spec import RotarySpec
from .calls import apply_rotary_qk, rotate
from .formats import TensorFormat, order_of


def warm_up(
    spec: RotarySpec,
    num_heads: int,
    num_kv_heads: int | None = None,
    *,
    seq_len: int | None = None,
    dtype: torch.dtype = torch.bfloat16,
    device: torch.device | str = "cuda",
    tensor_format: TensorFormat = "bhsd",
) -> None:
    """Compile what `rotate` and `apply_rotary_qk` launch for a spec, so that no request waits for it.

    A Triton kernel is compiled when it is first called, which takes seconds, and the steps of a spec are brought to the
    GPU then. This calls both with zeros: for few tokens, for many and for those in between, whose programs differ, one
    sequence and two, new results and in place. After it neither batch size nor length of a prompt compiles anything
    for q and k of these heads and of this dtype whose channels are contiguous and begin at multiples of 16 bytes. Norms
    and caches have code of their own, which their first call compiles. Call it once per spec and GPU, before a CUDA
    graph is captured. On a CPU there is nothing to compile.

    Raises ``ValueError`` for what these calls refuse.

    >>> warm_up(RotarySpec(head_dim=16), 4, 2, device="cpu")
    """
    whole("num_heads", num_heads)
    heads = num_heads, num_heads if num_kv_heads is None else num_kv_heads
    whole("num_kv_heads", heads[1])
    order_of(tensor_format)
    place = torch.device(device)
    for batch, tokens in triton.sizes_of(spec.layout, *heads, place):
        if tensor_format == "thd" and batch > 1:
            continue
        q, k = (_zeros(batch, tokens, h, spec.head_dim, tensor_format, dtype, place) for h in heads)
        axes = () if spec.axes.count == 1 else (spec.axes.count,)
        positions = torch.zeros(*axes, tokens, dtype=torch.int64, device=place)
        with torch.no_grad():
            about = {"tensor_format": tensor_format}
            rotation = Rotation.at(spec, positions, seq_len, dtype=dtype)
            for out in (None, None if rotation.promoted else (q, k)):
                rotate(q, k, positions, spec, seq_len=seq_len, out=out, **about)  # type: ignore[arg-type]
                apply_rotary_qk(q, k, rotation, out=out, **about)  # type: ignore[arg-type]


def _zeros(
    batch: int,
    tokens: int,
    heads: int,
    width: int,
    tensor_format: TensorFormat,
    dtype: torch.dtype,
    place: torch.device,
) -> torch.Tensor:
    shape = {
        "bhsd": (batch, heads, tokens), "bshd": (batch, tokens, heads), "sbhd": (tokens, batch, heads),
        "thd": (tokens, heads),
    }[tensor_format]  # fmt: skip
    return torch.zeros(*shape, width, dtype=dtype, device=place)
