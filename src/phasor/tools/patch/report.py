"""PatchReport: what `phasor.patch` compared, what it replaced, and why not the rest."""

import shutil
import textwrap
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from inspect import signature
from itertools import zip_longest
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...eye.call import call_of
from ...rotary.spec import RotarySpec
from ...support.findings import Difference, Finding, Report, Verdict, merged
from ...support.preserve_state import undisturbed
from .rotate_function import CALLS, parameters_of
from .sites import replaced_on_instance
from .tables import Tables

COLUMNS = ("module", "what", "spec", "agreement", "kernel", "replaced")
GAP = 2  # spaces between two columns
NARROWEST = 8  # no column is folded further


@dataclass(frozen=True, kw_only=True)
class SiteRow(Finding):
    """One site of the model: the verdict says whether phasor gives what the site gives, ``reason`` why it was left.

    ``agreement`` is the difference in words; ``spec`` and ``kernel`` say what rotates there now.
    """

    verdict: Verdict = "not shown"
    spec: str = "-"
    agreement: str = "-"
    kernel: str = "the model's own"

    @property
    def path(self) -> str:
        return self.where

    @property
    def replaced(self) -> bool:
        return not self.reason

    def cells(self) -> tuple[str, ...]:
        fate = "yes" if self.replaced else f"no: {self.reason}"
        return (self.where or "(the model)", self.what, self.spec, self.agreement, self.kernel, fate)


def compared(row: SiteRow, difference: Difference, agreement: str) -> SiteRow:
    """A row with the verdict that a difference gives."""
    verdict: Verdict = "right" if difference.close else "wrong"
    return replace(row, verdict=verdict, difference=difference, agreement=agreement)


def agreement(difference: Difference) -> str:
    """In a few words: ``"bit-equal"`` or how much is between the two."""
    return "bit-equal" if difference.exact else f"max difference {difference.size:.1e}"


class Swap(NamedTuple):
    """A module that got another class."""

    module: nn.Module
    before: type
    after: type


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


@dataclass(frozen=True)
class PatchReport(Report[SiteRow]):
    """Rows in the order of the model's modules; prints as a table in which equal layers share a line.

    In a terminal the cells are folded to its width.

    ``shift`` is the `LogitShift` of the inputs given to `phasor.patch` as ``compare``, else None. ``observed``: what
    rotates was seen in a run of the model, and not read from a config.
    """

    model: nn.Module = field(repr=False)
    angles: str
    swaps: tuple[Swap, ...] = field(repr=False)
    shift: LogitShift | None = None
    seq_len: Any = None
    observed: bool = False

    @property
    def rows(self) -> tuple[SiteRow, ...]:
        """What was looked at, a row each."""
        return self.findings

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
        if any(type(module) is not after for module, _, after in self.swaps):
            raise ValueError("the model is no longer as this report describes it; patch it again")
        ours = _logits(self.model, inputs)
        with self._original():
            theirs = _logits(self.model, inputs)
        difference = (ours.double() - theirs.double()).abs()
        changed = (ours.argmax(-1) != theirs.argmax(-1)).double().mean().item()
        return LogitShift(difference.max().item(), difference.mean().item(), changed)

    def undo(self) -> None:
        """Give the modules their own classes back."""
        for module, before, _ in self.swaps:
            module.__class__ = before

    @contextmanager
    def _original(self) -> Iterator[None]:
        try:
            self.undo()
            yield
        finally:
            for module, _, after in self.swaps:
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
        seen = ", of what was observed to rotate" if self.observed else ""
        line = f"{self.replaced} of {len(self.rows)} replaced{seen}, {angles}{self._frozen()}"
        return line if self.shift is None else f"{line}; {self.shift}"

    def _frozen(self) -> str:
        if self.seq_len is None:
            return ""
        if self.seq_len == "generate":
            return ", frequencies frozen for every generate call at its prompt and new tokens"
        lengths = self.seq_len if isinstance(self.seq_len, int) else " and ".join(map(str, self.seq_len))
        return f", frequencies frozen at {lengths} tokens"


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
    if not isinstance(inputs, Tensor | tuple) and not hasattr(inputs, "keys"):
        raise ValueError(
            f"inputs must be token ids (a tensor) or a dictionary of keyword arguments, got {type(inputs).__name__}"
        )
    with undisturbed(model):
        output = call_of(model, inputs).run()
    for name in ("logits", "last_hidden_state"):
        if isinstance(tensor := getattr(output, name, None), Tensor):
            return tensor
    first = output[0] if isinstance(output, tuple) else output
    if isinstance(first, Tensor):
        return first
    raise ValueError(f"inputs gave {type(output).__name__}, which has neither logits nor last_hidden_state to compare")


UNLIKE = "it does not rotate q and k as the config says"
LAST_BITS = "its results differ from phasor's in the last bits"
# On AVX2 the body of a loop rounds each product, its tail fuses one of them with the sum: which is which, sizes decide.
COMPLEX = "it multiplies complex numbers, which PyTorch rounds otherwise for other shapes and on other CPUs"
NOT_AGREED = "the tables it rotates by were not agreed on"


def out_of_reach(module: nn.Module) -> str:
    """Why a module is not compared, whatever it computes."""
    takes = [name for name in signature(module.forward).parameters]
    if "position_ids" not in takes:
        return f"it forms its tables from {', '.join(takes) or 'nothing'}, not from position_ids"
    return replaced_on_instance(module, ["forward"])


def stateful(tables: Tables, damage: str) -> str:
    """That a module remembers the lengths of earlier calls; ``damage``: what has happened to it besides."""
    scaling = tables.spec.scaling
    if scaling is not None and scaling.length_dependent and not scaling.two_regimes:
        way_out = f"{damage}: call phasor.repair(model)" if damage else ""
        kept = "its frequencies depend on the lengths of earlier calls, which the model's module keeps (dynamic NTK)"
        return f"{kept}{way_out}"
    return ""


def disagreement(module: nn.Module, tables: Tables | None, difference: Difference, specs: Sequence[RotarySpec]) -> str:
    """Why a module's result and phasor's are not the same."""
    if difference.exact:
        return ""
    if tables is None:
        pairs = {
            n.removesuffix("_inv_freq"): b.shape[-1] for n, b in module.named_buffers(recurse=False) if b.ndim == 1
        }
        read = " or ".join(dict.fromkeys(str(s.pairs) for s in specs))
        return f"its result is not cos and sin of {read} pairs, as its config says (it has {pairs or 'no frequencies'})"
    dtypes = {b.dtype for b in module.buffers(recurse=False)} - {torch.float32}
    if dtypes:
        rounded = f"its frequencies were rounded to {dtypes.pop()} by .to()"
        return f"{rounded}; load the model by from_pretrained(..., dtype=...) instead"
    return LAST_BITS if difference.close else "phasor forms other values from its config"


def unlike(difference: Difference) -> str:
    """Why a function whose results and phasor's are not the same is left; empty for the same bits."""
    if difference.exact:
        return ""
    return LAST_BITS if difference.close else UNLIKE


def not_comparable(function: Callable, tables: Sequence[Tables]) -> str:
    """Why a function that rotates is not compared."""
    parameters, _ = parameters_of(function)
    if not tables:
        return NOT_AGREED
    if tables[0].form == "complex":
        return COMPLEX
    return "" if parameters in CALLS else f"its arguments ({', '.join(parameters)}) are not known"
