"""RepairReport: what `repair` formed anew, and what it left and why."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...support.findings import any_layer, span


@dataclass(frozen=True)
class Mended:
    """One buffer or attribute of a module: what was wrong with it, and why it was left so, if it was.

    >>> Mended("model.rotary_emb", "inv_freq", "rounded to bfloat16").line()
    'model.rotary_emb.inv_freq: rounded to bfloat16; formed anew from the config'
    """

    path: str
    name: str
    was: str
    reason: str = ""

    @property
    def mended(self) -> bool:
        return not self.reason

    def line(self) -> str:
        fate = "formed anew from the config" if self.mended else f"left as it is: {self.reason}"
        return f"{self.path}.{self.name}: {self.was}; {fate}".lstrip(".")


@dataclass(frozen=True)
class RepairReport:
    """Everything that was wrong, in the order of the model's modules; prints the outcome first.

    >>> print(RepairReport("LlamaForCausalLM", (), 1))
    LlamaForCausalLM: nothing to mend in 1 module that keeps positions
    """

    model: str
    rows: tuple[Mended, ...]
    looked_at: int

    @property
    def mended(self) -> tuple[Mended, ...]:
        return tuple(row for row in self.rows if row.mended)

    @property
    def left(self) -> tuple[Mended, ...]:
        """What is wrong and could not be mended."""
        return tuple(row for row in self.rows if not row.mended)

    def summary(self) -> str:
        """One line."""
        if not self.rows:
            modules = "1 module that keeps" if self.looked_at == 1 else f"{self.looked_at} modules that keep"
            return f"{self.model}: nothing to mend in {modules} positions"
        left = f", {len(self.left)} left as they are" if self.left else ""
        return f"{self.model}: {len(self.mended)} mended{left}"

    def __str__(self) -> str:
        return "\n".join([self.summary(), *(f"  {row.line()}" for row in _merged(self.rows))])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {"model": self.model, "summary": self.summary(), "rows": [vars(row) for row in self.rows]}


def _merged(rows: Sequence[Mended]) -> list[Mended]:
    """Rows of equal layers as one: ``layers.0-3.attn``."""
    groups: dict[Mended, list[Mended]] = {}
    for row in rows:
        groups.setdefault(replace(row, path=any_layer(row.path)), []).append(row)
    return [replace(group[0], path=span([row.path for row in group])) for group in groups.values()]
