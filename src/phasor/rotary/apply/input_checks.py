"""Checks of q and k against the rotation they get: dtype, device, width, length and batch, with an error for each."""

from typing import Any

import torch
from torch import Tensor

from ...support.tracing import readable
from ..kernels import Angles, Order
from ..rotation import Rotation
from ..tables import Phases
from .formats import ORDERS, RANKS, SHAPES

DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def check_angles(name: str, angles: Any) -> None:
    if not isinstance(angles, Rotation):
        raise ValueError(
            f"{name} must be a Rotation, got {type(angles).__name__}; of a RotarySpec: Rotation.at(spec, positions), "
            "or phasor.rotate(q, k, positions, spec)"
        )


def check_tensor(name: str, x: Any) -> None:
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {type(x).__module__}.{type(x).__name__}")
    if x.is_nested or x.layout is not torch.strided:
        kind = "nested (pack its documents, tensor_format='thd')" if x.is_nested else f"{x.layout}"
        raise ValueError(f"{name} must be a dense tensor, got a {kind} one")
    if x.dtype not in DTYPES:
        raise ValueError(f"{name} must be float64, float32, float16 or bfloat16, got {x.dtype}")


def check_shape(name: str, x: Tensor, tensor_format: str) -> None:
    rank = RANKS.get(tensor_format)
    if x.ndim < 3 or (rank is not None and x.ndim != rank):
        raise ValueError(
            f"{name} must be {SHAPES[tensor_format]} for tensor_format={tensor_format!r}, got shape {tuple(x.shape)}"
        )


def unflat(name: str, x: Any, head_dim: int, tensor_format: str, num_heads: int | None = None) -> Any:
    """``[..., heads * head_dim] -> [..., heads, head_dim]``, a view; None stays None."""
    if x is None or not isinstance(x, Tensor):
        return x
    if tensor_format == "bhsd":
        raise ValueError("tensor_format must be 'bshd', 'sbhd' or 'thd' with num_heads (flat heads), got 'bhsd'")
    width = x.shape[-1] if x.ndim else 0
    if width % head_dim or num_heads not in (None, width // head_dim):
        heads = "a multiple of" if num_heads is None else f"num_heads={num_heads} times"
        raise ValueError(f"{name} must have {heads} head_dim={head_dim} channels, got {width} (shape {tuple(x.shape)})")
    return torch.unflatten(x, -1, (-1, head_dim))


def check_fits(name: str, x: Tensor, angles: Angles, order: Order, tensor_format: str) -> None:
    """``ValueError`` unless ``x`` is a tensor that ``angles`` can rotate in that order of axes."""
    check_tensor(name, x)
    shape = x.shape
    if len(shape) < 3 or tensor_format in RANKS:
        check_shape(name, x, tensor_format)
    if isinstance(angles, Phases):
        at = angles.positions[0]
        leading, tokens = at.shape[:-1], at.shape[-1]
    else:
        at = angles.cos
        leading, tokens = at.shape[:-2], at.shape[-2]
    if x.device != at.device:
        raise ValueError(f"{name} and the rotation must be on the same device, got {x.device} and {at.device}")
    layout = angles.layout
    if shape[-1] != layout.head_dim:
        raise _wrong_width(name, x, angles)
    if tokens != shape[order.tokens]:
        raise _wrong_length(name, x, tokens, tensor_format)
    if leading:
        _check_leading(name, x, leading, angles, order, tensor_format)


def check_pair(q: Tensor, k: Tensor) -> None:
    if q.dtype != k.dtype:
        raise ValueError(f"q and k must have the same dtype, got {q.dtype} and {k.dtype}; rotate them one at a time")
    if q.device != k.device:
        raise ValueError(f"q and k must be on the same device, got {q.device} and {k.device}")


def check_gradient(x: Tensor, angles: Angles) -> None:
    """Autograd cannot keep tables made in inference mode: say so before it does."""
    if not (x.requires_grad and isinstance(angles, Rotation) and torch.is_grad_enabled()):
        return
    if readable(angles.cos) and angles.cos.is_inference():
        raise ValueError(
            "the rotation was made in torch.inference_mode(), and its tables cannot be kept for a gradient; "
            "make it outside, or under torch.no_grad()"
        )


def _wrong_width(name: str, x: Tensor, angles: Angles) -> ValueError:
    head_dim, width = angles.layout.head_dim, x.shape[-1]
    hint = ""
    if width > head_dim and width % head_dim == 0:
        hint = f"; flat heads: num_heads={width // head_dim}, with tensor_format 'bshd', 'sbhd' or 'thd'"
    if isinstance(angles, Rotation) and width > head_dim == angles.layout.rotary_dim:
        hint += f"; if only {head_dim} of {width} channels rotate: head_dim={width} where the rotation is made"
    return ValueError(
        f"{name} must have the {head_dim} channels of the rotation's head_dim, "
        f"got {width} (shape {tuple(x.shape)}){hint}"
    )


def _wrong_length(name: str, x: Tensor, tokens: int, tensor_format: str) -> ValueError:
    hint = "give one position per token"
    if tokens == 1:
        hint += ", or, to move rotated keys by one distance, phasor.shift(k, by, spec)"
    others = [f for f in ("bhsd", "bshd", "sbhd") if f != tensor_format and x.ndim >= RANKS.get(f, 3)]
    if fitting := [f for f in others if x.shape[ORDERS[f].tokens] == tokens]:
        axis = f"its other axis has {tokens}: did you mean tensor_format={fitting[0]!r}?"
        hint = f"{hint}; {axis}" if tokens == 1 else axis
    return ValueError(
        f"{name} has {x.shape[ORDERS[tensor_format].tokens]} tokens in tensor_format={tensor_format!r} but the "
        f"rotation has {tokens} positions (shape {tuple(x.shape)}); {hint}"
    )


def _check_leading(
    name: str, x: Tensor, leading: tuple[int, ...], angles: Angles, order: Order, tensor_format: str
) -> None:
    """The rotation's batch (and head) sizes against those of x: equal, or 1. Never broadcast by accident."""
    if angles.per_head:
        heads = x.shape[order.heads]
        if leading[-1] != heads:
            raise ValueError(f"{name} has {heads} heads but the rotation has its own angles for {leading[-1]}")
        leading = leading[:-1]
    batch = order.batch_of(x)
    fits = len(leading) <= len(batch) and all(
        ours in (1, theirs) for ours, theirs in zip(reversed(leading), reversed(batch), strict=False)
    )
    if not fits:
        raise ValueError(
            f"the rotation's batch {tuple(leading)} must fit the batch {tuple(batch)} of {name} "
            f"(shape {tuple(x.shape)}, tensor_format={tensor_format!r}); positions with several axes belong to a spec "
            "with as many"
        )
