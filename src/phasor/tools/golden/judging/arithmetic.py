"""Exact angles or the model's own: which of the two a tensor holds, whatever its name says."""

import dataclasses

from torch import Tensor

from ..kinds import Kind
from ..vectors import Vectors
from .comparison import Comparison, against
from .outliers import SINGLE, agrees
from .report import Finding

MOST = 0.97  # of all values must be right for a tensor to be taken for one of the other arithmetic


def settled(golden: Vectors, kind: Kind, c: Comparison, given: dict[str, Tensor]) -> tuple[Comparison, Finding | None]:
    """The comparison to judge by, and a note if it is the one with the other arithmetic: worth saying, no error."""
    name = _counterpart(c.short)
    if c.swapped or name is None or f"{kind.name}.{name}" not in golden.tensors:
        return c, None
    other = against(golden, kind, c.name, name, given)
    telling = dataclasses.replace(c, got=other.expected).beyond | dataclasses.replace(other, got=c.expected).beyond
    if not telling.any():
        return c, None
    closer = int(agrees(other).sum()) > int(agrees(c).sum()) and float(other.wrong.double().mean()) <= 1 - MOST
    own_share = float(c.wrong[telling].double().mean())  # of what tells them apart, what is wrong as named
    if closer and (c.wrong.any() or (c.short.startswith("model.") and other.right)):
        return dataclasses.replace(other, short=c.short), _note(kind, c.short)
    if other.right and (own_share >= 0.5 or int(c.wrong.sum()) > SINGLE):
        return dataclasses.replace(other, short=c.short), _note(kind, c.short)
    return c, None


def _note(kind: Kind, short: str) -> Finding:
    own = f"{kind.own_angles} angles"
    says = f"these are exact angles, and not {own} as the model's own code forms them"
    if short.startswith("exact."):
        says = f"these are {own}, as the model's own code forms them, and not exact ones"
    return Finding(
        kind=kind.name, layers=kind.layers, tensor=short, cause="angles", says=says, error=False, explained=(short,)
    )


def _counterpart(short: str) -> str | None:
    mode, _, rest = short.partition(".")
    if mode not in ("exact", "model") or rest == "inv_freq":
        return None
    if mode == "model":
        return f"exact.{rest if rest.endswith('_out') else rest.partition('.')[2]}"
    return f"model.{rest}" if rest.endswith("_out") else f"model.float32.{rest}"


def merged(notes: list[Finding]) -> list[Finding]:
    """One note for all tensors of which the same is to be said."""
    found: dict[str, Finding] = {}
    for note in notes:
        first = found.setdefault(note.says, note)
        found[note.says] = dataclasses.replace(first, explained=tuple(dict.fromkeys((*first.explained, note.tensor))))
    return list(found.values())
