"""What was seen of a rotation, and whether fields of a spec give it."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ...rotary.axes import Axes
from ...rotary.spec import RotarySpec

if TYPE_CHECKING:
    from torch import Tensor

# How far a float32 ladder may lie from the exact one, relatively: rounding its exponents costs up to ln(base) half
# steps of float32, rounding powers and quotients two more. So far apart may be frequencies that were measured, or that
# a model forms in another order of operations.
TOLERANCE = 2.0**-20


def float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0] if abs(value) < 3.4e38 else math.inf  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Sight:
    """What was seen at each length (None: inside the trained one): frequencies, one per pair, and the factor."""

    at: dict[int | None, tuple[tuple[float, ...], float]]
    axes: Axes
    exact: bool

    @property
    def factor(self) -> float:
        return self.at[None][1]

    @property
    def lengths(self) -> list[int]:
        return sorted(length for length in self.at if length is not None)

    @cached_property
    def changed(self) -> list[int]:
        """The lengths at which it is not what it is inside the trained length."""
        return [n for n in self.lengths if not self.same(*self.at[n])]

    def same(self, frequencies: Sequence[float], factor: float) -> bool:
        """Whether these are the frequencies and the factor inside the trained length."""
        mine, my_factor = self.at[None]
        return self.is_factor(factor, my_factor) and (
            tuple(frequencies) == mine
            if self.exact
            else all(math.isclose(a, b, rel_tol=TOLERANCE) for a, b in zip(frequencies, mine, strict=True))
        )

    def is_factor(self, factor: float, seen: float) -> bool:
        """Whether a factor is the one that was seen, in float32 at least."""
        if self.exact:
            return float32(factor) == float32(seen)
        return math.isclose(factor, seen, rel_tol=TOLERANCE)

    @property
    def turning(self) -> int:
        """How many pairs, from the first, do not all stand still."""
        return max((p + 1 for p, f in enumerate(self.at[None][0]) if f), default=0)

    def first(self, pairs: int) -> Sight:
        """The same of the first pairs alone."""
        return Sight({n: (fs[:pairs], m) for n, (fs, m) in self.at.items()}, self.axes, self.exact)

    @cached_property
    def _rungs(self) -> tuple[tuple[int, int], ...]:
        return self.axes.rung_of_pair(len(self.at[None][0]))

    @cached_property
    def rungs(self) -> int:
        """How many rungs the longest of the ladders has; the others are told by the same base."""
        return max(n for _, n in self._rungs)

    @cached_property
    def steps(self) -> list[int]:
        """The rungs of that ladder on which a pair stands, in rising order."""
        return sorted({i for i, n in self._rungs if n == self.rungs})

    def ladder(self, length: int | None = None) -> list[float]:
        """The frequency of each of `steps`."""
        on_rung = dict(zip(self._rungs, self.at[length][0], strict=True))
        return [on_rung[i, self.rungs] for i in self.steps]

    @cached_property
    def _tensors(self) -> dict[int | None, Tensor]:
        import torch

        return {n: torch.tensor(fs, dtype=torch.float64, device="cpu") for n, (fs, _) in self.at.items()}

    def judge(self, fields: Mapping[str, Any]) -> tuple[bool, bool, bool]:
        """Whether these fields give the frequencies nearly, whether as they were seen, and whether the factor."""
        try:
            pairs = len(self.at[None][0])
            spec = RotarySpec(head_dim=2 * pairs, axes=self.axes, angles="float32", **fields)
        except (ValueError, OverflowError, ZeroDivisionError):
            return False, False, False  # parameters that do not go together, or not with this width
        gaps = []
        for length, seen in self._tensors.items():
            gap = (spec.inv_freq(length) * spec.position_scale - seen).abs()
            if not (gap <= TOLERANCE * seen.abs()).all():
                return False, False, False
            gaps.append(float(gap.max()))
        factors = all(self.is_factor(spec.attention_factor(n), m) for n, (_, m) in self.at.items())
        return True, not (self.exact and any(gaps)), factors
