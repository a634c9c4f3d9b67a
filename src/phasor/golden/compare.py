"""One tensor of another implementation against the golden one: where it is off, and by how much."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .files import Vectors, fitted
from .imitate import Case, radians, right
from .kinds import Kind
from .tensors import PER_RADIAN, WIDEST, Tolerance, channels

TELLING = 40_000.0  # radians: beyond, float32 angles are so far off that a value says nothing about its cause


@dataclass(frozen=True)
class Comparison:
    """``expected`` and ``got`` in float64 and one shape; ``angles`` of each element in radians (0 where none turns).

    ``swapped``: heads and tokens were in the other order. ``dtype`` is that of the golden tensor.
    """

    name: str
    short: str
    expected: Tensor
    got: Tensor
    swapped: bool
    angles: Tensor
    tolerance: Tolerance
    dtype: torch.dtype

    @property
    def wrong(self) -> Tensor:
        """Where it is farther off than the tolerance allows."""
        t = self.tolerance
        allowed = t.absolute + t.relative * self.expected.abs() + t.per_radian * self.angles
        return ~((self.got - self.expected).abs() <= allowed)  # not >, which is false for nan

    @property
    def right(self) -> bool:
        return not self.swapped and not bool(self.wrong.any())

    @property
    def telling(self) -> Tensor:
        return (self.angles < TELLING).expand(self.expected.shape)

    def matches(self, candidate: Tensor) -> Tensor:
        """Where ``got`` is this candidate, whichever way the angles were formed."""
        t = self.tolerance
        scale = 1.0 if not self.short.endswith("_out") else WIDEST
        allowed = t.absolute + t.relative * candidate.abs() + PER_RADIAN * scale * 2 * self.angles
        both_nan = self.got.isnan() & candidate.isnan()
        return ((self.got - candidate).abs() <= allowed) | both_nan

    def first(self) -> tuple[int, ...] | None:
        """The index of the first wrong element, tokens before heads; None if there is none."""
        wrong = self.wrong
        if not wrong.any():
            return None
        if wrong.ndim == 4:
            batch, token, head, channel = wrong.transpose(1, 2).nonzero()[0].tolist()
            return batch, head, token, channel
        return tuple(wrong.nonzero()[0].tolist())


def compared(vectors: Vectors, other: dict[str, Tensor], kind: Kind) -> list[Comparison]:
    """Every tensor of ``other`` that belongs to this kind, in the order of the vectors."""
    case = right(vectors, kind) if kind.spec is not None else None
    found = []
    for name in vectors.tensors:
        if name in other and vectors.kind_of(name) == kind:
            expected, short = vectors.tensors[name], vectors.short(name)
            got, swapped = fitted(name, other[name], expected)
            angles = _angles(short, case, expected)
            found.append(
                Comparison(
                    name, short, expected.double(), got, swapped, angles, vectors.tolerance(name), expected.dtype
                )
            )
    return found


def _angles(short: str, case: Case | None, expected: Tensor) -> Tensor:
    what = short.rpartition(".")[2]
    if case is None or not (what.endswith("_out") or what.split("_")[0] in ("cos", "sin")):
        return torch.zeros((), dtype=torch.float64)
    size = case.replace(positions=case.positions.abs())
    angles = radians(size, second=what.endswith("second")).abs()
    if case.spec.second is not None:
        angles = torch.maximum(angles, radians(size, second=True).abs())
    if not what.endswith("_out"):
        return angles
    wide = torch.zeros(expected.shape[-2], expected.shape[-1], dtype=torch.float64)
    where = channels(case.spec)
    for side in ("first", "second", "first_written", "second_written"):
        wide[:, where[side]] = torch.maximum(wide[:, where[side]], angles)
    return wide


def ulps(expected: float, got: float, dtype: torch.dtype) -> float:
    """The difference in units in the last place of ``expected`` in its dtype.

    >>> ulps(1.0, 1.0 + 2**-22, torch.float32)
    2.0
    """
    if expected == 0 or not dtype.is_floating_point:
        return abs(got - expected) / (torch.finfo(dtype).tiny if dtype.is_floating_point else 1)
    step: Any = torch.finfo(dtype).eps * 2.0 ** torch.tensor(expected, dtype=torch.float64).abs().log2().floor().item()
    return abs(got - expected) / step
