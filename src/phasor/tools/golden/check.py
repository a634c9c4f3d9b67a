"""Another implementation against the golden vectors: equal, or the first difference and its likely cause."""

import os
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor

from .comparison import Comparison, compare, first_difference, in_other_angles
from .diagnose import diagnose, diagnose_backward
from .functions import run
from .layer_kinds import Kind
from .report import GoldenReport, TensorFinding
from .tensors import GRADIENT, GRADIENTS
from .vectors import AGAIN, Vectors, read_other, read_vectors

FEW = 0.01  # of all values: more of them are a mistake that is not known


def check(
    vectors: str | os.PathLike[str], other: str | os.PathLike[str] | dict[str, Tensor | Callable[[Tensor], Any]]
) -> GoldenReport:
    """Compare another implementation with golden vectors.

    ``vectors`` is the folder that `phasor.golden.write` wrote; ``other`` a safetensors file, a folder of them, or the
    tensors themselves, by the names of the vectors, any subset of them, in any floating-point dtype. In place of a
    rotated q or k there may be the function that rotates it: its gradient is then compared, too. Raises
    ``ValueError`` for files that cannot be read or were changed, for a name that the vectors do not have, and for
    another shape.

    >>> import torch
    >>> from tempfile import TemporaryDirectory
    >>> from phasor.golden import write
    >>> config = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> with TemporaryDirectory() as folder:
    ...     vectors = write(config, f"{folder}/golden", positions=[0, 1, 2])
    ...     report = check(vectors, {"attention.exact.inv_freq": torch.tensor([1.0, 0.1])})  # base 100, not 10000
    >>> report.verdict, report.findings[0].reason
    ('wrong', 'the base is 100, and must be 10000')
    """
    golden = read_vectors(vectors)
    given, why_not = run(golden, other) if isinstance(other, dict) else (other, {})
    tensors = read_other(given, golden)
    findings = [finding for kind in golden.kinds.values() for finding in findings_of(golden, kind, tensors)]
    findings += [one for kind in golden.kinds.values() for one in _without_gradient(golden, kind, tensors, why_not)]
    return GoldenReport("golden vectors", tuple(findings), tuple(tensors), len(golden.tensors) - len(tensors))


def _without_gradient(
    golden: Vectors, kind: Kind, other: dict[str, Tensor], why_not: dict[str, str]
) -> Iterator[TensorFinding]:
    """What is not shown where rotated q or k are given, and no gradient of theirs. Keys that move need none."""
    rotated = [f"{label}.{t}" for label in {n.rpartition(".")[0] for n in other} for t in GRADIENTS]
    rotated = [name for name in rotated if f"{name}_out" in other and golden.kind_of(f"{name}_out") == kind]
    missing = sorted(name for name in rotated if f"{name}{GRADIENT}" not in other)
    if not missing or kind.moved:
        return
    reason = "save what your backward makes of q_grad_in and k_grad_in, too, or give phasor.golden.check the function"
    if f"{missing[0]}{GRADIENT}" not in golden.tensors:
        reason = f"these vectors were written before they had gradients; {AGAIN}"
    reasons = list(dict.fromkeys(why_not.get(f"{name}_out", reason) for name in missing))
    what = ", ".join(golden.short(f"{name}_out").replace("_out", GRADIENT) for name in missing)
    yield TensorFinding(
        where=kind.name, layers=kind.layers, what=what, verdict="not shown", cause="gradient", reason="; ".join(reasons)
    )


def findings_of(golden: Vectors, kind: Kind, other: dict[str, Tensor]) -> list[TensorFinding]:
    """What differs in the tensors of one kind, and what is worth knowing about those that do not."""
    names = [name for name in golden.tensors if name in other and golden.kind_of(name) == kind]
    tensors: list[Comparison] = []
    of_angles: dict[str, list[str]] = {}  # what to say -> the tensors of which it is to be said
    for name in names:
        named = compare(golden, kind, name, golden.short(name), other)
        if (swapped := in_other_angles(golden, kind, named, other)) is not None:
            of_angles.setdefault(_angles_text(kind, named.short), []).append(named.short)
        tensors.append(swapped or named)
    noted = {short for shorts in of_angles.values() for short in shorts}
    about = {"where": kind.name, "layers": kind.layers}
    notes = [
        TensorFinding(**about, what=shorts[0], verdict="right", cause="angles", reason=text, explained=tuple(shorts))  # type: ignore[arg-type]
        for text, shorts in of_angles.items()
    ]
    wrong = [c for c in tensors if not c.right]
    fine = tuple(c.short for c in tensors if c.right and c.short not in noted)
    return [*_differences(golden, kind, wrong, fine), *notes] if wrong else notes


def _angles_text(kind: Kind, short: str) -> str:
    own = f"{kind.own_angles} angles"
    if short.startswith("exact."):
        return f"these are {own}, as the model's own code forms them, and not exact ones"
    return f"these are exact angles, and not {own} as the model's own code forms them"


def _differences(golden: Vectors, kind: Kind, wrong: list[Comparison], fine: tuple[str, ...]) -> list[TensorFinding]:
    """One finding; or one of the results and one of the gradients, where no one cause explains both."""
    backward, forward = [c for c in wrong if c.backward], [c for c in wrong if not c.backward]
    together = _difference(golden, kind, wrong, fine)
    if not forward or not {c.short for c in backward} & {*together.unexplained, together.what}:
        return [together]
    return [_difference(golden, kind, part, fine) for part in (forward, backward)]


def _difference(golden: Vectors, kind: Kind, wrong: list[Comparison], fine: tuple[str, ...]) -> TensorFinding:
    swapped, off = [c for c in wrong if c.swapped], [c for c in wrong if c.wrong.any()]
    judge = diagnose_backward if all(c.backward for c in off) else diagnose
    known = judge(golden, kind, off) if off and not _one_of_many(off) else None
    explained = known.tensors if known else []
    causes = [(known.word, known.text)] if known else []
    if swapped:
        text = "heads and tokens are in the other order; they must be [batch, heads, seq, head_dim]"
        causes.insert(0, ("tensor_format", text))
    if off and not known:
        causes.append(_unnamed(off[0]))
    reason = "; and ".join(text for _, text in causes)
    others = (*fine, *(c.short for c in off if c not in explained))
    if any(_sibling(c.short, other) for c in explained for other in others):
        reason += f" (only in {', '.join(c.short for c in explained)})"
    first = (explained or off or swapped)[0]
    names = tuple(c.short for c in wrong if c in explained or (c.swapped and not off))
    return TensorFinding(
        where=kind.name,
        layers=kind.layers,
        what=first.short,
        verdict="wrong",
        cause="+".join(cause for cause, _ in causes),
        reason=reason,
        difference=first_difference(golden, kind, first),
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
    which = "this one value is" if count == 1 else f"{count} values are"
    return "value", f"{which} off, and the other {total - count:,} of the tensor are right"


def _sibling(a: str, b: str) -> bool:
    """Whether two tensors should share a fault: q_out and k_out, cos and sin of one kind of arithmetic."""
    return a != b and a.rpartition(".")[0] == b.rpartition(".")[0] and ("_out" in a) == ("_out" in b)
