"""apply_qk_norm_rotary: RMSNorm of queries and keys, and the rotation, in one call."""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ...support.checks import flag, number, one_of
from ..kernels import Norm, Rounding, choose
from ..kernels.norm import ROUNDINGS
from ..rotation import Rotation
from . import short_ways
from .formats import TensorFormat, order_of
from .input_checks import check_angles, check_fits, check_gradient, check_pair, unflat
from .outputs import check_out
from .sharded import is_sharded, pair_on_shards, weight_on_shards


def apply_qk_norm_rotary(
    q: Tensor,
    k: Tensor | None,
    rotation: Rotation,
    q_weight: Tensor | None,
    k_weight: Tensor | None,
    *,
    eps: float = 1e-6,
    unit_offset: bool = False,
    across_heads: bool = False,
    after: bool = False,
    rounding: Rounding = "once",
    tensor_format: TensorFormat = "bhsd",
    num_heads: int | None = None,
    kernel: str = "auto",
    out: tuple[Tensor, Tensor] | None = None,
) -> tuple[Tensor, Tensor]:
    """RMSNorm of every head of q and k, and the rotation: ``y = R (x / sqrt(mean(x ** 2) + eps) * weight)``.

    Weights are ``[head_dim]``, or both None; models keep their sum with one (``unit_offset``: Gemma) or the factor
    itself. ``across_heads``: one mean over all heads of a token, weights ``[heads * head_dim]`` (OLMo 2).
    ``after``: heads are rotated first (HunYuan, Llama 4). It is computed in float32, or in float64 if q and k are, and
    rounded to their dtype:

    - ``"once"``: at the end, which is the most exact;
    - ``"between"``: also between norm and rotation, as a norm and a rotation in turn do (Gemma 3, OLMo 2, torch's
      `RMSNorm`);
    - ``"before_weight"``: also before the weight multiplies (Qwen 3 and most others).

    In float32 the three are one. Gradients reach q, k and both weights; for them q and k are kept. The rest as in
    `apply_rotary_qk`. The order in which squares are added is not part of the meaning: two kernels, or two machines,
    may differ by the rounding of such a sum.

    Raises ``ValueError`` for weights of another length or device, for one without the other, for an ``eps`` below 0,
    and for all that `apply_rotary_qk` refuses.

    >>> quarter = Rotation.from_tables(torch.zeros(1, 1), torch.ones(1, 1), form="half")
    >>> q, weight = torch.tensor([[[7.0, 1.0]]]), torch.tensor([5.0, 10.0])
    >>> apply_qk_norm_rotary(q, None, quarter, weight, None, eps=0.0)[0].tolist()
    [[[-2.0, 7.0]]]
    """
    norm = Norm(q_weight, k_weight, eps, unit_offset, across_heads, after, rounding)
    done = short_ways.after_a_norm(kernel, q, k, rotation, norm, tensor_format, num_heads, out)
    if done is not None:
        return done  # type: ignore[return-value]
    check_angles("rotation", rotation)
    number("eps", eps, at_least=0)
    for name, value in (("unit_offset", unit_offset), ("across_heads", across_heads), ("after", after)):
        flag(name, value)
    one_of("rounding", rounding, ROUNDINGS)
    if is_sharded(q):
        return _sharded(q, k, rotation, norm, tensor_format, num_heads, kernel, out)
    order, pair, flat_out = order_of(tensor_format), None, out
    if num_heads is not None:
        head_dim = rotation.layout.head_dim
        q, k = unflat("q", q, head_dim, tensor_format, num_heads), unflat("k", k, head_dim, tensor_format)
        if isinstance(out, tuple | list):
            out = tuple(unflat("out", y, head_dim, tensor_format) for y in out)  # type: ignore[assignment]
    if k is not None and (q_weight is None) != (k_weight is None):
        raise ValueError("q_weight and k_weight must both be tensors or both be None, got one of each")
    for name, x, weight in (("q", q, q_weight), ("k", k, k_weight)):
        if x is not None:
            check_fits(name, x, rotation, order, tensor_format)
            check_gradient(x, rotation)
            if weight is not None:
                check_weight(f"{name}_weight", weight, x, x.shape[order.heads] if across_heads else 1)
    if k is not None:
        check_pair(q, k)
    if out is not None:
        pair = check_out(out, q, k, rotation, ("q", "k"))
        learns = (w.requires_grad for x, w in ((q, q_weight), (k, k_weight)) if x is not None and w is not None)
        if torch.is_grad_enabled() and any(learns):
            raise ValueError(
                "out cannot be written where a gradient is needed (that of the weights); call without out=, "
                "or use torch.no_grad()"
            )
    y, z = choose(kernel, q, k, rotation, norm).norm_and_rotate(q, k, rotation, order, norm, pair)
    if num_heads is not None:
        y, z = flat_out or (y.flatten(-2), None if z is None else z.flatten(-2))
    return y, z  # type: ignore[return-value]


def _sharded(
    q: Any, k: Any, rotation: Rotation, norm: Norm, tensor_format: Any, num_heads: int | None, kernel: str, out: Any
) -> Any:
    """Each by itself, on the part that is here; a mean over all heads needs them all on one rank."""
    for name, x in (("q", q), ("k", k)):
        axis = -1 if num_heads else order_of(tensor_format).heads
        if x is not None and norm.across_heads and any(p.is_shard(x.ndim + axis) for p in x.placements):
            raise ValueError(f"{name} must have all heads on each rank for across_heads=True, got {x.placements}")

    def rotated(whole: Any, weight: Any, part: Tensor, own: Any, num_heads: int | None, out: Any) -> Tensor:
        return apply_qk_norm_rotary(
            part, None, own, weight_on_shards(weight, whole), None, eps=norm.eps, unit_offset=norm.unit_offset,
            across_heads=norm.across_heads, after=norm.after, rounding=norm.rounding, tensor_format=tensor_format,
            num_heads=num_heads, kernel=kernel, out=None if out is None else (out, out),
        )[0]  # fmt: skip

    each = partial(rotated, q, norm.q_weight), partial(rotated, k, norm.k_weight)
    width = rotation.layout.head_dim
    return pair_on_shards(q, k, (rotation, rotation), tensor_format, num_heads, width, out, each)


def check_norm(norm: Norm | None, **weights: Any) -> None:
    """``ValueError`` unless a norm that need not be there is what its arguments, named as the call names them, say."""
    if norm is None:
        for name, weight in weights.items():
            if weight is not None:
                raise ValueError(f"eps must be given with {name}: the number that the norm adds to a mean of squares")
        return
    number("eps", norm.eps, at_least=0)
    flag("unit_offset", norm.unit_offset)
    one_of("rounding", norm.rounding, ROUNDINGS)
    if len({weight is None for weight in weights.values()}) > 1:
        raise ValueError(f"{' and '.join(weights)} must both be tensors or both be None, got one of each")


def check_weight(name: str, weight: Any, x: Tensor, heads: int) -> None:
    width = heads * x.shape[-1]
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or weight.shape != (width,):
        got = f"{weight.dtype} {tuple(weight.shape)}" if isinstance(weight, Tensor) else type(weight).__name__
        each = f"{heads} heads of {x.shape[-1]} channels" if heads > 1 else "a head"
        raise ValueError(f"{name} must be a tensor [{width}] of floats, one for each channel of {each}, got {got}")
    if weight.device != x.device:
        raise ValueError(f"{name} and what it multiplies must be on the same device, got {weight.device}, {x.device}")
