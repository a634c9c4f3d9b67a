"""Factors on the queries that grow with the position: they keep attention sharp over long contexts.

A temperature multiplies whole query vectors, rotated or not, in the layers whose model says so. Results are float32, in
the order of operations of transformers; round them to the dtype of the queries before the product where the model does.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..support.checks import number, whole

if TYPE_CHECKING:
    from torch import Tensor


class Temperature(ABC):
    """A scheme for the factor at a query's position; each has ``at(positions, …) -> Tensor``."""

    name: ClassVar[str]


@dataclass(frozen=True)
class LogFloor(Temperature):
    """``1 + beta * ln(1 + floor((position + offset) / length))``: constant inside every ``length`` positions.

    Source: Llama 4's layers without rotary (``attn_scale``, ``floor_scale``, ``offset=1``); Ministral 3 and Mistral 4
    (``llama_4_scaling_beta``, the trained length, ``offset=0``); after Nakanishi 2025, arXiv:2501.19399.

    >>> import torch
    >>> LogFloor(beta=0.5, length=8192).at(torch.tensor([0, 8191, 8192])).tolist()  # 1 + ln(2) / 2
    [1.0, 1.0, 1.3465735912322998]
    """

    beta: float
    length: int
    offset: int = 0
    name = "log_floor"

    def __post_init__(self) -> None:
        number("beta", self.beta)
        whole("length", self.length)
        whole("offset", self.offset, at_least=0)

    def at(self, positions: Tensor) -> Tensor:
        """The factor at integer ``positions``, of their shape."""
        check_integers(positions)
        steps = (positions + self.offset).div(self.length, rounding_mode="floor")
        return 1 + self.beta * (1 + steps.float()).log()


@dataclass(frozen=True)
class Power(Temperature):
    """``((position + offset) / length + 1) ** exponent``.

    Source: Beam's layers without rotary, formed as ``exp(exponent * log1p(…))``.

    >>> import torch
    >>> Power(exponent=2.0, length=2, offset=1).at(torch.tensor([1, 3])).round().tolist()  # 2 ** 2, 3 ** 2
    [4.0, 9.0]
    """

    exponent: float = 0.1
    length: int = 2048
    offset: int = 1
    name = "power"

    def __post_init__(self) -> None:
        number("exponent", self.exponent)
        whole("length", self.length)
        whole("offset", self.offset, at_least=0)

    def at(self, positions: Tensor) -> Tensor:
        """The factor at integer ``positions``, of their shape."""
        check_integers(positions)
        shifted = (positions.float() + self.offset) / self.length
        return (self.exponent * shifted.log1p()).exp()


@dataclass(frozen=True)
class LearnedLog(Temperature):
    """``scale_h * ln(position + 1) + bias_h``, with a trained scale and bias per head. Source: Mistral Large 4.

    >>> import torch
    >>> LearnedLog().at(torch.tensor([0, 1]), scale=torch.tensor([1.0]), bias=torch.tensor([2.0])).tolist()
    [[2.0, 2.6931471824645996]]
    """

    name = "learned_log"

    def at(self, positions: Tensor, scale: Tensor, bias: Tensor) -> Tensor:
        """``[(B,) H, S]`` for integer ``positions`` ``[(B,) S]``; ``scale`` and ``bias`` ``[H]``, whose dtype it has.

        Give both in the dtype of the queries, in which the model computes. Gradients pass to them.
        """
        check_integers(positions)
        if scale.ndim != 1 or scale.shape != bias.shape or scale.dtype != bias.dtype:
            raise ValueError(
                "scale and bias must have one value per head and the same dtype, "
                f"got {scale.dtype} {tuple(scale.shape)} and {bias.dtype} {tuple(bias.shape)}"
            )
        logs = (positions + 1).float().log().to(scale.dtype)
        return scale.unsqueeze(-1) * logs.unsqueeze(-2) + bias.unsqueeze(-1)


TEMPERATURES: dict[str, type[Temperature]] = {scheme.name: scheme for scheme in (LogFloor, Power, LearnedLog)}


def check_integers(positions: Tensor) -> None:
    """Raise ``ValueError`` unless ``positions`` is a tensor of integers.

    >>> import torch
    >>> check_integers(torch.tensor([0.5]))
    Traceback (most recent call last):
    ValueError: positions must be a tensor of integers, got torch.float32; convert token positions with .long()
    """
    import torch

    if not isinstance(positions, torch.Tensor) or positions.is_floating_point() or positions.dtype == torch.bool:
        got = positions.dtype if isinstance(positions, torch.Tensor) else type(positions).__name__
        raise ValueError(f"positions must be a tensor of integers, got {got}; convert token positions with .long()")
