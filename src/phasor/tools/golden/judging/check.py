"""Another implementation against the golden vectors: equal, or the first difference and its likely cause."""

import os
from typing import Any

from torch import Tensor

from ..kinds import Kind
from ..vectors import Vectors, read_vectors
from .arithmetic import merged, settled
from .comparison import Comparison, compared, ulps
from .diagnose import diagnose
from .outliers import FEW
from .read_tensors import read_given
from .report import Finding, Report


def check(vectors: str | os.PathLike[str], other: str | os.PathLike[str] | dict[str, Tensor]) -> Report:
    """Compare another implementation with golden vectors.

    ``vectors`` is the folder that `phasor.golden.write` wrote; ``other`` a safetensors file, a folder of them, or the
    tensors themselves, by the names of the vectors, any subset of them, in any floating-point dtype. Raises
    ``ValueError`` for files that cannot be read or were changed, for a name that the vectors do not have, and for
    another shape.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> from phasor.golden import write
    >>> config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> with TemporaryDirectory() as folder:
    ...     vectors = write(config, f"{folder}/golden", positions=[0, 1, 2])
    ...     report = check(vectors, {"attention.exact.inv_freq": torch.tensor([1.0, 0.1])})  # base 100, not 10000
    >>> report.equal, report.findings[0].says
    (False, 'the base is 100, and must be 10000')
    """
    golden = read_vectors(vectors)
    theirs = read_given(other, golden)
    findings: list[Finding] = []
    for kind in golden.kinds.values():
        findings += findings_of(golden, kind, theirs)
    return Report(tuple(findings), tuple(theirs), len(golden.tensors) - len(theirs))


def findings_of(golden: Vectors, kind: Kind, theirs: dict[str, Tensor]) -> list[Finding]:
    """What differs in the tensors of one kind, and what is worth knowing about those that do not."""
    decided = [settled(golden, kind, c, theirs) for c in compared(golden, theirs, kind)]
    tensors, notes = [c for c, _ in decided], [note for _, note in decided if note is not None]
    wrong = [c for c in tensors if not c.right]
    found = merged(notes)
    if wrong:
        excused = {note.tensor for note in notes}
        fine = tuple(c.short for c in tensors if c.right and c.short not in excused)
        found.insert(0, _difference(golden, kind, wrong, fine))
    return found


def _difference(golden: Vectors, kind: Kind, wrong: list[Comparison], fine: tuple[str, ...]) -> Finding:
    swapped, off = [c for c in wrong if c.swapped], [c for c in wrong if c.wrong.any()]
    causes, explained = diagnose(golden, kind, off) if off and not _one_of_many(off) else ((), [])
    words, says = [m.cause for m in causes], [m.says for m in causes]
    if swapped:
        words.insert(0, "tensor_format")
        says.insert(0, "heads and tokens are in the other order; they must be [batch, heads, seq, head_dim]")
    if off and not causes:
        word, sentence = _unnamed(off[0])
        words.append(word)
        says.append(sentence)
    others = (*fine, *(c.short for c in off if c not in explained))
    if words and any(_sibling(c.short, other) for c in explained for other in others):
        says[-1] += f" (only in {', '.join(c.short for c in explained)})"
    first = (explained or off or swapped)[0]
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


def _one_of_many(off: list[Comparison]) -> bool:
    """Whether a single value is off: some base or scaling always gives it, which is no evidence of a mistake in all."""
    return len(off) == 1 and int(off[0].wrong.sum()) == 1 and off[0].wrong.numel() >= 4


def _unnamed(c: Comparison) -> tuple[str, str]:
    """What can be said where no known mistake gives the values: how many are off."""
    count, total = int(c.wrong.sum()), c.wrong.numel()
    if total == 1:
        return "value", "this value is off"
    if count > max(1.0, FEW * total) or total < 4:
        return "unknown", "none of the known mistakes gives these values"
    if count == 1:
        return "value", f"this one value is off, and the other {total - 1:,} of the tensor are right"
    return "value", f"{count} values are off, and the other {total - count:,} of the tensor are right"


def _place(golden: Vectors, kind: Kind, first: Comparison) -> dict[str, Any]:
    index = first.first()
    if index is None:
        return {}
    expected, got = float(first.expected[index]), float(first.got[index])
    apart = abs(got - expected)
    found: dict[str, Any] = {"expected": expected, "got": got, "ulps": ulps(expected, got, first.dtype)}
    found["relative"] = apart / abs(expected) if expected else apart
    what = first.short.rpartition(".")[2]
    if what in ("inv_freq", "log_scale"):
        return {**found, "channel": index[0]}
    token = index[-2] if len(index) > 1 and what != "temperature" else index[-1] if index else None
    if token is not None and what != "positions":
        positions = golden.tensors[f"{kind.name}.positions"]
        found["position"] = tuple(positions.reshape(-1, positions.shape[-1])[:, token].tolist())
    if what == "positions":
        found["token"] = index[-1]
    if len(index) == 4:
        found |= {"head": index[1], "channel": index[3]}
    elif what.split("_")[0] in ("cos", "sin"):
        found["channel"] = index[-1]
    return found


def _sibling(a: str, b: str) -> bool:
    """Whether two tensors should share a fault: q_out and k_out, cos and sin of one kind of arithmetic."""
    return a != b and a.rpartition(".")[0] == b.rpartition(".")[0] and ("_out" in a) == ("_out" in b)
