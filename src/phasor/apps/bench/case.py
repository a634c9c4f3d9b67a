"""A case: what is timed, in units of what, and what the ratio should be."""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec
from .race import Calls, Times, medians
from .result import Finding, Goal

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
LAYOUTS = ("halves", "interleaved")


@dataclass(frozen=True)
class Setting:
    """One cell of a case's table. ``quick`` asks for sizes that take no time and mean nothing."""

    dtype: torch.dtype
    interleaved: bool = False
    kernel: str = "auto"
    threads: int = 1
    quick: bool = False
    device: str = "cpu"

    def spec(self, head_dim: int) -> RotarySpec:
        return RotarySpec(head_dim=head_dim, base=500_000.0, interleaved=self.interleaved)

    def rotation(self, head_dim: int, positions: Tensor) -> Rotation:
        return Rotation.at(self.spec(head_dim), positions, dtype=self.dtype)

    def pair(self, batch: int, q_heads: int, k_heads: int, seq: int, width: int) -> tuple[Tensor, Tensor]:
        """q and k ``[batch, heads, seq, width]``, the same at every call."""
        source = torch.Generator().manual_seed(0)
        q = torch.randn(batch, q_heads, seq, width, generator=source)
        k = torch.randn(batch, k_heads, seq, width, generator=source)
        return q.to(self.device, self.dtype), k.to(self.device, self.dtype)


def compared(times: Times, measured: str, unit: str, goal: Goal | None) -> Finding:
    """The median of the ratios of every round, and their quartiles."""
    ratios = [a / b for a, b in zip(times[measured], times[unit], strict=True)]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    middle_of = medians(times)
    return Finding(
        measured, unit, middle_of[measured] * 1e6, middle_of[unit] * 1e6, middle, (low, high), "quartiles", goal
    )


def one_ratio(case: "Case", dtype: str, times: Times) -> list[Finding]:
    return [compared(times, case.measured, case.unit, case.goals.get(dtype))]


@dataclass(frozen=True)
class Case:
    """``name`` is what ``--cases`` takes; ``about`` says what is timed, in the page and in words.

    ``make`` gives the calls of a setting by name, among them ``measured`` and ``unit``, on tensors of their own.
    ``goals`` are by dtype; where a case has findings of its own, ``judge`` has them with their goals, and ``said`` says
    those. A ``large`` case is measured in fresh and in reused memory. ``why_not`` says why it cannot run here, or
    nothing.
    """

    name: str
    about: str
    make: Callable[[Setting], Calls]
    unit: str
    goals: Mapping[str, Goal] = field(default_factory=dict)
    said: str = ""
    measured: str = "phasor"
    dtypes: tuple[str, ...] = tuple(DTYPES)
    layouts: tuple[str, ...] = LAYOUTS
    large: bool = False
    gradient: bool = False
    threads: int = 1  # at least
    repeat: int = 1
    why_not: Callable[[], str] = field(default=lambda: "")
    judge: Callable[["Case", str, Times], list[Finding]] = one_ratio


def at_most(float32: float, bfloat16: float | None = None, float16: float | None = None) -> dict[str, Goal]:
    """Goals by dtype; half precision has that of the dtype before it, unless it is named."""
    bfloat16 = float32 if bfloat16 is None else bfloat16
    float16 = bfloat16 if float16 is None else float16
    bounds = zip(DTYPES, (float32, bfloat16, float16), strict=True)
    return {dtype: Goal("at most", bound) for dtype, bound in bounds}


def at_least(bound: float) -> dict[str, Goal]:
    return {dtype: Goal("at least", bound) for dtype in DTYPES}
