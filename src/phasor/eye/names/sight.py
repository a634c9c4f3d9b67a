"""What was seen of a rotation, and whether fields of a spec give it."""

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from ...rotary.axes import Axes
from ...rotary.spec import RotarySpec

# How far a float32 ladder may lie from the exact one, relatively: rounding its exponents costs up to ln(base) half
# steps of float32, powers and quotients two more. So far may other orders of operations lie, and what was measured.
TOLERANCE = 2.0**-20
Seen = tuple[Sequence[float], float]  # frequencies and factor


def float32(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0] if abs(value) < 3.4e38 else math.inf  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Sight:
    """What was seen at each length (None: inside the trained one): frequencies, one per pair, and the factor."""

    at: Mapping[int | None, Seen]
    axes: Axes
    exact: bool

    @cached_property
    def changed(self) -> list[int]:
        """The lengths at which it is not what it is inside the trained length."""
        inside = (*self.at[None][0], self.at[None][1])
        return sorted(n for n, (fs, m) in self.at.items() if n and not all(map(self.alike, (*fs, m), inside)))

    def alike(self, a: float, b: float) -> bool:
        """Whether two numbers are the same as far as they were seen, in float32 at least."""
        return float32(a) == float32(b) if self.exact else math.isclose(a, b, rel_tol=TOLERANCE)

    @cached_property
    def rungs(self) -> int:
        """How many rungs the longest of the ladders has; the others are told by the same base."""
        return max(n for _, n in self.axes.rung_of_pair(len(self.at[None][0])))

    @cached_property
    def ladder(self) -> dict[int, float]:
        """The frequency on each rung of that ladder on which a pair stands, in rising order."""
        frequencies, _ = self.at[None]
        rungs = zip(self.axes.rung_of_pair(len(frequencies)), frequencies, strict=True)
        return dict(sorted((i, f) for (i, n), f in rungs if n == self.rungs))

    def judge(self, fields: Mapping[str, Any]) -> tuple[bool, bool] | None:
        """Whether fields that give the frequencies nearly give them as they were seen, and whether the factor."""
        try:
            spec = RotarySpec(
                **{"head_dim": 2 * len(self.at[None][0]), "axes": self.axes, "angles": "float32", **fields}
            )
        except (ValueError, OverflowError, ZeroDivisionError):
            return None  # parameters that do not go together, or not with this width
        bits = True
        for length, (frequencies, _) in self.at.items():
            seen = torch.tensor(frequencies, dtype=torch.float64, device="cpu")
            gap = (spec.inv_freq(length) * spec.position_scale - seen).abs()
            if not (gap <= TOLERANCE * seen.abs()).all():
                return None
            bits = bits and not (self.exact and gap.any())
        return bits, all(self.alike(spec.attention_factor(n), m) for n, (_, m) in self.at.items())
