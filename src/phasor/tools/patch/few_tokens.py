"""Tables of a decoded token: what `Tables.at` gives, in as few operations as there can be.

Of few values an operation costs what its call costs. So the frequencies are laid out over the channels once, and not
cos and sin in every forward pass. Every value is formed by itself, so the bits are the same.
"""

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...rotary import stacked
from ...rotary.kernels.native import kernel as native
from ...rotary.kernels.native.autograd import plan_of_steps
from ...rotary.tables import frequencies_of, steps_of
from ...support.tracing import watched
from .tables import Tables

FEW = 2**12  # values of cos up to which forming one for each channel takes less time than forming one for each pair
DTYPES = (torch.float32, torch.bfloat16, torch.float16)


class FewTokens:
    """`Tables.at` for a module that is mostly asked for one token: its results, its errors."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        spec = tables.spec
        self.simple = (
            tables.form != "complex"
            and not tables.led
            and spec.axes.count == 1
            and spec.coordinates == "integer"
            and spec.angles in ("exact", "float32", "float32_exp")
            and spec.tables != "float64"
            and not spec.learned
            and not spec.length_dependent
        )
        self.channels = spec.pairs if tables.form == "half" else 2 * spec.pairs

    @cached_property
    def factor(self) -> float:
        return self.tables.spec.attention_factor()

    @cached_property
    def per_channel(self) -> Tensor:
        """The step (of exact angles) or frequency of each channel, or of each pair where cos has one value a pair."""
        spec, cpu = self.tables.spec, torch.device("cpu")
        members = (False, spec.second is not None)
        with torch.inference_mode(False):  # what is made there could not take part in a gradient later
            if spec.angles == "exact":
                rows = (steps_of(spec, None, second, cpu)[0] for second in members)
            else:
                rows = (frequencies_of(spec, None, second, torch.float32, cpu)[0] for second in members)
            return self.tables.laid_out(*rows)

    def at(self, x: Tensor, positions: Tensor) -> Any:
        """What `Tables.at` gives; for `simple` tables."""
        if torch.compiler.is_compiling() or not self._are_few(x, positions) or watched():
            return self.tables.at(x, positions)
        spec, each = self.tables.spec, self.per_channel
        if spec.angles == "exact":
            if positions.numel() == 1 and (formed := self._in_one_pass(x, positions)) is not None:
                return formed
            cos, sin = stacked.cos_sin((positions,), (each,))
        else:
            at = positions.float()
            if spec.position_scale != 1:
                at = at * spec.position_scale
            angles = at.unsqueeze(-1) * each
            cos, sin = angles.cos(), angles.sin()
        if spec.reverse:
            sin = -sin
        if self.factor != 1.0:
            cos, sin = cos * self.factor, sin * self.factor
        dtype = x.dtype if self.tables.rounded else torch.float32
        return (cos, sin) if dtype == torch.float32 else (cos.to(dtype), sin.to(dtype))

    def _in_one_pass(self, x: Tensor, positions: Tensor) -> tuple[Tensor, Tensor] | None:
        """Exact tables of one token by the native kernel, which rotates (1, 0) of each pair to (cos, sin)."""
        if self.tables.spec.reverse or not native.is_open("auto"):  # -sin of 0 is -0, and a sum with 0 is not
            return None
        head = self.heads[x.dtype if self.tables.rounded else torch.float32]
        rotated = native.rotate_by_plan(head, positions, self.plan)
        if rotated is None:
            return None
        cos, sin = rotated.view(*positions.shape, 2, self.channels).unbind(-2)
        return cos, sin

    @cached_property
    def plan(self) -> Any:
        return plan_of_steps(self.per_channel.tolist(), self.factor)

    @cached_property
    def heads(self) -> dict[torch.dtype, Tensor]:
        """One head, of which every pair is (1, 0)."""
        with torch.inference_mode(False):
            one = torch.tensor([1.0, 0.0], device="cpu").repeat_interleave(self.channels).view(1, 1, 1, -1)
            return {dtype: one.to(dtype) for dtype in DTYPES}

    def _are_few(self, x: Tensor, positions: Any) -> bool:
        """Whether these are few integer positions, on a CPU."""
        return (
            type(positions) is Tensor
            and positions.dtype == torch.int64
            and positions.is_cpu
            and x.is_cpu
            and x.dtype in DTYPES
            and positions.ndim in (1, 2)
            and positions.numel() * self.channels <= FEW
        )
