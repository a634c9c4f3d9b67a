"""Checks of tensors that builders are given."""

import torch
from torch import Tensor


def described(value: object) -> str:
    """The shape of a tensor, or the type of anything else, for an error message.

    >>> described(torch.zeros(2, 3)), described(5)
    ('shape (2, 3)', 'int')
    """
    return f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__


def with_values(**tensors: object) -> None:
    """Raise ``ValueError`` for a tensor on the meta device, which has a shape and no values.

    >>> with_values(position_ids=torch.zeros(3, device="meta"))
    Traceback (most recent call last):
    ValueError: position_ids must hold values, got a tensor on the meta device; make it on the CPU or a GPU
    """
    for name, value in tensors.items():
        if isinstance(value, Tensor) and value.is_meta:
            raise ValueError(f"{name} must hold values, got a tensor on the meta device; make it on the CPU or a GPU")


def integers(name: str, value: Tensor, ndim: int, of: str = "") -> Tensor:
    """``value`` as int64; ``ValueError`` unless it is a tensor of integers with ``ndim`` dimensions.

    >>> integers("cached", torch.tensor([0.5]), 1)
    Traceback (most recent call last):
    ValueError: cached must hold integers, got torch.float32
    """
    if not isinstance(value, Tensor) or value.ndim != ndim:
        dimensions = f"{ndim} dimension{'s' if ndim > 1 else ''}"
        raise ValueError(f"{name} must be a tensor with {dimensions}{of and ' ' + of}, got {described(value)}")
    if value.dtype.is_floating_point or value.dtype.is_complex or value.dtype == torch.bool:
        raise ValueError(f"{name} must hold integers, got {value.dtype}")
    if value.dtype == torch.uint64:
        raise ValueError(f"{name} must hold integers of at most 63 bits, got torch.uint64; convert with .long()")
    return value.to(torch.int64)
