"""apply_rotary: the one way to turn queries and keys. Checks, then the kernel."""

from typing import Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .kernels import eager, reference
from .rotation import Rotation
from .spec import RotarySpec

TensorFormat = Literal["bhsd", "bshd"]
_SEQUENCE_DIM = {"bhsd": -2, "bshd": -3}
_HEAD_DIM = {"bhsd": -3, "bshd": -2}
_FEW = 2**17  # elements of q and k together below which the CPU spends more on launching operations than on moving data
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def apply_rotary(x: Tensor, rotation: Rotation, *, tensor_format: TensorFormat = "bhsd") -> Tensor:
    """Rotate ``x`` by ``rotation``: ``y = R x`` for every token and head. A new, contiguous tensor.

    ``x`` is ``[..., heads, seq, head_dim]`` (``"bhsd"``, the order of SDPA) or ``[..., seq, heads, head_dim]``
    (``"bshd"``), float64, float32, float16 or bfloat16, any strides. The rotation's length must be that of the
    sequence, and its batch, if it has one, that of ``x``. The result has the dtype of ``x``, or, of a ``promoted``
    rotation, the wider one of its tables. The gradient is the transposed rotation of the gradient, and nothing of ``x``
    is kept for it.

    Raises ``ValueError`` for a rank, length, batch, head count, width, dtype or device that does not fit.

    >>> spec = RotarySpec(head_dim=4)
    >>> x = torch.ones(1, 1, 2, 4)
    >>> y = apply_rotary(x, Rotation.at(spec, torch.tensor([0, 1])))
    >>> bool((y[0, 0, 0] == x[0, 0, 0]).all()), bool((y[0, 0, 1] == x[0, 0, 1]).all())
    (True, False)
    """
    _check("x", x, rotation, tensor_format)
    return _turn(x, rotation, tensor_format)


def apply_rotary_qk(
    q: Tensor, k: Tensor, rotation: Rotation, *, tensor_format: TensorFormat = "bhsd"
) -> tuple[Tensor, Tensor]:
    """`apply_rotary` for queries and keys of the same tokens; head counts may differ (grouped-query attention)."""
    _check("q", q, rotation, tensor_format)
    _check("k", k, rotation, tensor_format)
    if q.dtype != k.dtype:
        raise ValueError(f"q and k must have the same dtype, got {q.dtype} and {k.dtype}; rotate them one at a time")
    if q.device != k.device:
        raise ValueError(f"q and k must be on the same device, got {q.device} and {k.device}")
    if _is_decoding_step(q, k, rotation):
        # costs what its operations cost to launch: launch them once for both
        heads = _HEAD_DIM[tensor_format]
        of_q, of_k = q.shape[heads], k.shape[heads]
        both = _turn(torch.cat((q, k), dim=heads), rotation, tensor_format)
        return both.narrow(heads, 0, of_q).contiguous(), both.narrow(heads, of_q, of_k).contiguous()
    return _turn(q, rotation, tensor_format), _turn(k, rotation, tensor_format)


def rotate(
    q: Tensor,
    k: Tensor,
    positions: Tensor,
    spec: RotarySpec,
    *,
    seq_len: int | None = None,
    tensor_format: TensorFormat = "bhsd",
) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys of the tokens at ``positions`` by ``spec``: the usual call, phases inside.

    ``positions`` is ``[seq]`` or ``[batch, seq]``, with a leading axis dimension if the spec has several axes.
    In a model with many layers of one spec, build ``Rotation.at(spec, positions)`` once and call `apply_rotary_qk`.

    >>> q, k = rotate(torch.ones(1, 2, 3, 4), torch.ones(1, 1, 3, 4), torch.arange(3), RotarySpec(head_dim=4))
    >>> q.shape, k.shape
    (torch.Size([1, 2, 3, 4]), torch.Size([1, 1, 3, 4]))
    """
    if not isinstance(q, Tensor):
        raise ValueError(f"q must be a torch tensor, got {type(q).__module__}.{type(q).__name__}")
    rotation = Rotation.at(spec, positions, seq_len, dtype=q.dtype)
    return apply_rotary_qk(q, k, rotation, tensor_format=tensor_format)


def _check(name: str, x: Tensor, rotation: Rotation, tensor_format: str) -> None:
    if tensor_format not in _SEQUENCE_DIM:
        raise ValueError(f"tensor_format must be 'bhsd' or 'bshd', got {tensor_format!r}")
    if not isinstance(x, Tensor):
        raise ValueError(f"{name} must be a torch tensor, got {type(x).__module__}.{type(x).__name__}")
    cos = rotation.cos
    length, width = cos.shape[-2], 2 * cos.shape[-1]
    shape = x.shape
    if len(shape) < 3:
        order = "[..., heads, seq, head_dim]" if tensor_format == "bhsd" else "[..., seq, heads, head_dim]"
        raise ValueError(f"{name} must be {order} for tensor_format={tensor_format!r}, got shape {tuple(shape)}")
    if x.dtype not in _DTYPES:
        raise ValueError(f"{name} must be float64, float32, float16 or bfloat16, got {x.dtype}")
    if x.device != cos.device:
        raise ValueError(f"{name} and the rotation must be on the same device, got {x.device} and {cos.device}")
    if rotation.head_dim is not None and shape[-1] != rotation.head_dim:
        raise ValueError(
            f"{name} must have the {rotation.head_dim} channels of the spec's head_dim, got {shape[-1]} "
            f"(shape {tuple(shape)})"
        )
    if width > shape[-1]:
        raise ValueError(
            f"{name} must have at least the rotation's {width} channels, got {shape[-1]} (shape {tuple(shape)})"
        )
    if length != shape[_SEQUENCE_DIM[tensor_format]]:
        raise _wrong_length(name, x, length, tensor_format)
    if cos.ndim > 2:
        _check_leading(name, x, rotation, tensor_format)


def _wrong_length(name: str, x: Tensor, length: int, tensor_format: str) -> ValueError:
    other = "bshd" if tensor_format == "bhsd" else "bhsd"
    hint = "give one position per token"
    if x.shape[_SEQUENCE_DIM[other]] == length:
        hint = f"its other axis has {length}: did you mean tensor_format={other!r}?"
    return ValueError(
        f"{name} has {x.shape[_SEQUENCE_DIM[tensor_format]]} tokens in tensor_format={tensor_format!r} but the "
        f"rotation has {length} positions (shape {tuple(x.shape)}); {hint}"
    )


def _check_leading(name: str, x: Tensor, rotation: Rotation, tensor_format: str) -> None:
    """The rotation's batch (and head) sizes against those of x: equal, or 1. Never broadcast by accident."""
    leading = rotation.cos.shape[:-2]
    if rotation.per_head:
        heads = x.shape[_HEAD_DIM[tensor_format]]
        if leading[-1] != heads:
            raise ValueError(f"{name} has {heads} heads but the rotation has its own angles for {leading[-1]}")
        leading = leading[:-1]
    batch = x.shape[:-3]
    fits = len(leading) <= len(batch) and all(
        ours in (1, theirs) for ours, theirs in zip(reversed(leading), reversed(batch), strict=False)
    )
    if not fits:
        raise ValueError(
            f"the rotation's batch {tuple(leading)} must fit the batch {tuple(batch)} of {name} "
            f"(shape {tuple(x.shape)}, tensor_format={tensor_format!r}); positions with several axes belong to a spec "
            "with as many"
        )


def _turn(x: Tensor, rotation: Rotation, tensor_format: str) -> Tensor:
    cos, sin = _lined_up(rotation.cos, rotation.sin, rotation.per_head, tensor_format)
    layout = rotation.layout()
    if rotation.second is not None:
        second = _lined_up(*rotation.second, rotation.per_head, tensor_format)
        return reference.rotate(x, cos, sin, second=second, **layout)
    if _is_plain_eager(x, rotation):
        return eager.rotate(x, cos, sin, sequence_dim=_SEQUENCE_DIM[tensor_format], **layout)
    return reference.rotate(x, cos, sin, **layout)


def _is_decoding_step(q: Tensor, k: Tensor, rotation: Rotation) -> bool:
    """Whether q and k are so small, and so alike, that they may be rotated as one tensor."""
    return (
        _is_plain_eager(q, rotation)
        and _is_plain_eager(k, rotation)
        and not (torch.is_grad_enabled() and (q.requires_grad or k.requires_grad))
        and q.numel() + k.numel() <= _FEW
        and q.shape[:-3] == k.shape[:-3]
        and q.shape[-1] == k.shape[-1]
        and not rotation.per_head
    )


def _is_plain_eager(x: Tensor, rotation: Rotation) -> bool:
    """Whether the CPU runs one operation at a time: all else, other devices too, takes the plain expression."""
    return x.is_cpu and not (
        torch.compiler.is_compiling()
        or rotation.cos.requires_grad
        or rotation.sin.requires_grad
        or type(x) not in (Tensor, torch.nn.Parameter)
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
        or torch.jit.is_tracing()
    )


def _lined_up(cos: Tensor, sin: Tensor, per_head: bool, tensor_format: str) -> tuple[Tensor, Tensor]:
    """cos and sin with a head axis where the tensors have it, to broadcast over heads."""
    if per_head:
        return (cos, sin) if tensor_format == "bhsd" else (cos.transpose(-3, -2), sin.transpose(-3, -2))
    heads = _HEAD_DIM[tensor_format]
    return cos.unsqueeze(heads), sin.unsqueeze(heads)
