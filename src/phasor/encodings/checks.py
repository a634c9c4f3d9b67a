"""What learned parameters and heads must be before an encoding computes with them."""

from torch import Tensor

from ..support.tracing import readable
from .base import Encoding, check_heads


def check_finite(encoding: Encoding) -> None:
    """Raise ``ValueError`` if a parameter holds NaN or infinity. Values are looked at on a CPU only.

    >>> import torch
    >>> encoding = Encoding()
    >>> encoding.slope = torch.nn.Parameter(torch.tensor(float("nan")))
    >>> check_finite(encoding)
    Traceback (most recent call last):
    ValueError: slope of Encoding must be finite, got nan; load weights from before it left the numbers
    """
    for name, values in encoding.named_parameters():
        if values.is_cpu and readable(values) and not bool(values.isfinite().all()):
            bad = values.detach()[~values.isfinite()][0].item()
            raise ValueError(
                f"{name} of {type(encoding).__name__} must be finite, got {bad}; "
                "load weights from before it left the numbers"
            )


def check_own_heads(encoding: Encoding, num_heads: int, q: Tensor, k: Tensor) -> None:
    """Raise ``ValueError`` unless q and k both have the heads whose rotations the encoding learns one by one."""
    check_heads(encoding, num_heads, q)
    if k.shape[1] != num_heads:
        raise ValueError(
            f"k must have the {num_heads} heads that {type(encoding).__name__} was made for, each with a rotation of "
            f"its own, got {k.shape[1]}; repeat_interleave the shared heads of k and v"
        )
