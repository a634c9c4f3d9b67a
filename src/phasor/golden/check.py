"""Another implementation against the golden vectors: equal, or the first difference and its likely cause."""

import dataclasses
import difflib
import os
from typing import Any

import torch
from torch import Tensor

from .compare import Comparison, compared, ulps
from .diagnose import diagnose
from .files import Vectors, read_other, read_vectors
from .kinds import Kind
from .report import Finding, Report


def check(vectors: str | os.PathLike[str], other: str | os.PathLike[str] | dict[str, Tensor]) -> Report:
    """Compare another implementation with golden vectors.

    ``vectors`` is the folder that `phasor.golden.write` wrote; ``other`` a safetensors file, a folder of them, or the
    tensors themselves, by the names of the vectors, any subset of them, in any floating-point dtype. Raises
    ``ValueError`` for files that cannot be read, for a name that the vectors do not have, and for another shape.
    """
    golden = read_vectors(vectors)
    theirs = dict(other) if isinstance(other, dict) else read_other(other)
    _check_tensors(golden, theirs)
    findings: list[Finding] = []
    for kind in golden.kinds.values():
        findings += findings_of(golden, kind, compared(golden, theirs, kind))
    return Report(tuple(findings), tuple(theirs), len(golden.tensors) - len(theirs))


def _check_tensors(golden: Vectors, theirs: dict[str, Tensor]) -> None:
    if not theirs:
        raise ValueError("other must hold at least one tensor by the name it has in the vectors, got none")
    for name, tensor in theirs.items():
        if not isinstance(tensor, Tensor) or tensor.is_complex() or tensor.dtype == torch.bool:
            got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise ValueError(f"other: {name} must be a tensor of real numbers, got {got}")
        if name not in golden.tensors:
            near = difflib.get_close_matches(str(name), golden.tensors, 1, 0.3)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"other: {name!r} must be the name of a tensor of the vectors{hint}")


def findings_of(golden: Vectors, kind: Kind, tensors: list[Comparison]) -> list[Finding]:
    """What differs in the tensors of one kind, and what is worth knowing about those that do not."""
    notes = [n for c in tensors if (n := _other_arithmetic(golden, kind, c)) is not None]
    excused = {n.tensor for n in notes}
    wrong = [c for c in tensors if not c.right and c.short not in excused]
    found = _merged(notes)
    if wrong:
        fine = tuple(c.short for c in tensors if c not in wrong)
        found.insert(0, _difference(golden, kind, wrong, fine))
    return found


def _difference(golden: Vectors, kind: Kind, wrong: list[Comparison], fine: tuple[str, ...]) -> Finding:
    swapped, off = [c for c in wrong if c.swapped], [c for c in wrong if c.wrong.any()]
    causes, explained = diagnose(golden, kind, off) if off else ((), [])
    words, says = [m.cause for m in causes], [m.says for m in causes]
    if swapped:
        words.insert(0, "tensor_format")
        says.insert(0, "heads and tokens are in the other order; they must be [batch, heads, seq, head_dim]")
    if off and not causes:
        words.append("unknown")
        says.append("none of the known mistakes gives these values")
    one_only = explained and fine and words
    if one_only and any(_sibling(c.short, f) for c in explained for f in fine):
        says[-1] += f" (only in {', '.join(c.short for c in explained)})"
    first = off[0] if off else swapped[0]
    names = tuple(c.short for c in wrong if c in explained or (c.swapped and not off))
    return Finding(
        kind=kind.name,
        layers=kind.layers,
        tensor=first.short,
        cause="+".join(words),
        says="; and ".join(says),
        **_place(golden, kind, first),
        explained=names,
        unexplained=tuple(c.short for c in wrong if c.short not in names and c is not first),
        right=fine,
    )


def _place(golden: Vectors, kind: Kind, first: Comparison) -> dict[str, Any]:
    index = first.first()
    if index is None:
        return {}
    expected, got = float(first.expected[index]), float(first.got[index])
    apart = abs(got - expected)
    found: dict[str, Any] = {"expected": expected, "got": got, "ulps": ulps(expected, got, first.dtype)}
    found["relative"] = apart / abs(expected) if expected else apart
    what = first.short.rpartition(".")[2]
    if what == "inv_freq":
        return {**found, "channel": index[0]}
    token = index[-2] if len(index) > 1 and what != "temperature" else index[-1] if index else None
    if token is not None and what != "log_scale":
        positions = golden.tensors[f"{kind.name}.positions"]
        at = positions.reshape(-1, positions.shape[-1])[:, token].tolist() if what != "positions" else None
        found["position"] = None if at is None else tuple(at)
    if len(index) == 4:
        found |= {"head": index[1], "channel": index[3]}
    elif what.split("_")[0] in ("cos", "sin"):
        found["channel"] = index[-1]
    return found


def _sibling(a: str, b: str) -> bool:
    """Whether two tensors should share a fault: q_out and k_out, cos and sin of one kind of arithmetic."""
    return a != b and a.rpartition(".")[0] == b.rpartition(".")[0] and ("_out" in a) == ("_out" in b)


def _other_arithmetic(golden: Vectors, kind: Kind, c: Comparison) -> Finding | None:
    """A tensor that is right in the other arithmetic, exact for the model's or the reverse: worth saying, no error."""
    name = _counterpart(c.short)
    if c.swapped or name is None or f"{kind.name}.{name}" not in golden.tensors:
        return None
    whole = f"{kind.name}.{name}"
    other = dataclasses.replace(c, expected=golden.tensors[whole].double(), tolerance=golden.tolerance(whole))
    if other.wrong.any():
        return None
    if c.short.startswith("exact."):
        says = f"these are {kind.own_angles} angles, as the model's own code forms them, and not exact ones"
        apart = bool(c.wrong.any())
    else:
        says = f"these are exact angles, and not {kind.own_angles} angles as the model's own code forms them"
        there = dataclasses.replace(other, got=c.expected)  # unless both agree so well that nothing can be told
        apart = bool(c.wrong.any()) or (bool(there.wrong.any()) and not bool((c.got == c.expected).all()))
    if not apart:
        return None
    return Finding(
        kind=kind.name, layers=kind.layers, tensor=c.short, cause="angles", says=says, error=False, explained=(c.short,)
    )


def _counterpart(short: str) -> str | None:
    mode, _, rest = short.partition(".")
    if mode not in ("exact", "model") or rest == "inv_freq":
        return None
    if mode == "model":
        return f"exact.{rest if rest.endswith('_out') else rest.partition('.')[2]}"
    return f"model.{rest}" if rest.endswith("_out") else f"model.float32.{rest}"


def _merged(notes: list[Finding]) -> list[Finding]:
    """One note for all tensors of which the same is to be said."""
    found: dict[str, Finding] = {}
    for note in notes:
        first = found.setdefault(note.says, note)
        found[note.says] = dataclasses.replace(first, explained=tuple(dict.fromkeys((*first.explained, note.tensor))))
    return list(found.values())
