"""PatchReport: what `phasor.patch` compared, what it replaced, and why not the rest."""

import shutil
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor, nn

from .group_rows import merged

COLUMNS = ("module", "what", "spec", "agreement", "kernel", "replaced")
GAP = 2  # spaces between two columns
NARROWEST = 8  # no column is folded further


@dataclass(frozen=True)
class Row:
    """One thing in the model: the tables of a rotary module, or the turning of q and k in an attention module."""

    path: str
    what: str
    spec: str = "-"
    agreement: str = "-"
    kernel: str = "the model's own"
    reason: str = ""  # why it was not replaced; empty if it was

    @property
    def replaced(self) -> bool:
        return not self.reason

    def cells(self) -> tuple[str, ...]:
        fate = "yes" if self.replaced else f"no: {self.reason}"
        return (self.path or "(the model)", self.what, self.spec, self.agreement, self.kernel, fate)


@dataclass(frozen=True)
class LogitShift:
    """How far a model's logits moved: largest and mean absolute difference, and the share of tokens whose best changed.

    >>> print(LogitShift(largest=0.5, mean=0.125, changed=0.0))
    logits move by at most 0.5, 0.12 on average; the best token changes for 0.0 % of positions
    """

    largest: float
    mean: float
    changed: float

    def __str__(self) -> str:
        return (
            f"logits move by at most {self.largest:.2g}, {self.mean:.2g} on average; "
            f"the best token changes for {100 * self.changed:.1f} % of positions"
        )


@dataclass
class PatchReport:
    """Rows in the order of the model's modules; prints as a table in which equal layers share a line.

    In a terminal the cells are folded to its width.

    ``shift`` is the `LogitShift` of the inputs given to `phasor.patch` as ``compare``, else None.
    """

    model: nn.Module = field(repr=False)
    angles: str
    rows: tuple[Row, ...]
    classes: tuple[tuple[nn.Module, type, type], ...] = field(repr=False)  # module, its class before and after
    shift: LogitShift | None = None

    @property
    def replaced(self) -> int:
        """The number of rows that were replaced."""
        return sum(row.replaced for row in self.rows)

    def logit_shift(self, inputs: Any) -> LogitShift:
        """Run the patched and the original model on ``inputs`` (token ids, or keyword arguments) and compare logits.

        Models without logits are compared by their last hidden state. The model stays patched; both runs are in eval
        mode and without gradients.

        Raises ``ValueError`` if the model was unpatched since, and for inputs that are neither.
        """
        if any(type(module) is not after for module, _, after in self.classes):
            raise ValueError("the model is no longer as this report describes it; patch it again")
        ours = _logits(self.model, inputs)
        with self._original():
            theirs = _logits(self.model, inputs)
        difference = (ours.double() - theirs.double()).abs()
        changed = (ours.argmax(-1) != theirs.argmax(-1)).double().mean().item()
        return LogitShift(difference.max().item(), difference.mean().item(), changed)

    @contextmanager
    def _original(self) -> Iterator[None]:
        try:
            for module, before, _ in self.classes:
                module.__class__ = before
            yield
        finally:
            for module, _, after in self.classes:
                module.__class__ = after

    def __str__(self) -> str:
        rows = [COLUMNS, *(row.cells() for row in merged(self.rows))]
        widths = _fitted([max(len(row[i]) for row in rows) for i in range(len(COLUMNS))])
        rows.insert(1, tuple("-" * width for width in widths))
        return "\n".join([*(_folded(row, widths) for row in rows), self.summary()])

    def summary(self) -> str:
        """One line: how much was replaced, with which angles, and what that did to the logits if it was measured."""
        formed = any(row.replaced and row.what.startswith("tables") for row in self.rows)
        angles = f"{self.angles} angles" if formed else "angles from the model's own tables"
        line = f"{self.replaced} of {len(self.rows)} replaced, {angles}"
        return line if self.shift is None else f"{line}; {self.shift}"

    def __rich__(self) -> Any:
        from rich.console import Group
        from rich.table import Column, Table

        table = Table(*(Column(name, overflow="fold") for name in COLUMNS))
        for row in merged(self.rows):
            table.add_row(*row.cells())
        return Group(table, self.summary())


def _fitted(widths: list[int]) -> list[int]:
    """Widths of columns that fit the terminal; as they are where there is none. The widest give way."""
    room = shutil.get_terminal_size((0, 0)).columns - GAP * (len(widths) - 1)
    while 0 < room < sum(widths) and max(widths) > NARROWEST:
        widths[widths.index(max(widths))] -= 1
    return widths


def _folded(row: tuple[str, ...], widths: list[int]) -> str:
    """One row of a table, on as many lines as its longest cell needs."""
    cells = [textwrap.wrap(cell, width) for cell, width in zip(row, widths, strict=True)]
    lines = zip_longest(*cells, fillvalue="")
    gap = " " * GAP
    return "\n".join(gap.join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)


def _logits(model: nn.Module, inputs: Any) -> Tensor:
    if not isinstance(inputs, Tensor) and not hasattr(inputs, "keys"):
        raise ValueError(
            f"inputs must be token ids (a tensor) or a dictionary of keyword arguments, got {type(inputs).__name__}"
        )
    given = {"input_ids": inputs} if isinstance(inputs, Tensor) else inputs
    modes = [(module, module.training) for module in model.modules()]
    try:
        with torch.no_grad():
            output = model.eval()(**given)
    finally:
        for module, training in modes:
            module.training = training
    for name in ("logits", "last_hidden_state"):
        if isinstance(found := getattr(output, name, None), Tensor):
            return found
    raise ValueError(f"inputs gave {type(output).__name__}, which has neither logits nor last_hidden_state to compare")
