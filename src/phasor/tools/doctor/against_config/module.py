"""One rotary module, and what its config says of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor, nn

from ....models.reading.model import ModelRotary
from ....rotary.spec import RotarySpec
from ....support.findings import Difference
from ..report import Check
from .frequencies import damaged


@dataclass(frozen=True)
class Module:
    """A rotary module, for one layer type, with the specs that its tables may be and what the config gives besides."""

    path: str
    module: nn.Module
    probe: nn.Module
    layer_type: str | None
    specs: Sequence[RotarySpec]
    models: Sequence[ModelRotary]

    @property
    def check(self) -> Check:
        what = "tables" if self.layer_type is None else f"tables of {self.layer_type}"
        return Check(
            where=self.path, what=what, against="spec", verdict="right", difference=Difference(of="cos and sin")
        )

    def broken(self, check: Check, frequencies: Tensor | None) -> Check | None:
        """The fault of frequencies to which something has happened; None for all others."""
        damage = None if frequencies is None else damaged(frequencies, self.specs)
        if damage is None:
            return None
        cause, says, way = damage
        return replace(check, verdict="wrong", cause=cause, reason=says, way_out=way)
