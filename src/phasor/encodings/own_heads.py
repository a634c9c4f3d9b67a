from torch import Tensor

from .base import Encoding, check_heads


def check_own_heads(encoding: Encoding, num_heads: int, q: Tensor, k: Tensor) -> None:
    """Raise ``ValueError`` unless q and k both have the heads whose rotations the encoding learns one by one."""
    check_heads(encoding, num_heads, q)
    if k.shape[1] != num_heads:
        raise ValueError(
            f"k must have the {num_heads} heads that {type(encoding).__name__} was made for, each with a rotation of "
            f"its own, got {k.shape[1]}; repeat_interleave the shared heads of k and v"
        )
