"""The proof of a conversion: both sides read again, and compared in what matters.

- Tensors that stay are equal byte for byte.
- Tensors that move, brought back by the inverse order, give the source's bytes.
- Attention scores of random activations through the projections of both sides, each rotated as its own layout says, are
  equal in float64 (`phasor.checkpoints.scores`).
"""

from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .formats import read
from .output import CHUNK, follows
from .permutation import INT64, inverse, with_pairs
from .plan import ConversionPlan
from .qk_tensors import Move
from .reordering import load, reordered
from .scores import score_difference
from .source import Source
from .stored import Stored, Tensor

TOLERANCE = 1e-12  # of the largest score: sums of a few thousand products in float64


def prove(plan: ConversionPlan, folder: Path) -> dict[str, Any]:
    """Compare the converted files in ``folder`` with the source of ``plan``; ``ValueError`` says what is not equal."""
    source, result = plan.source, read(folder, allow_pickle=True)
    _check_names(source, result, folder)

    def check(name: str) -> int:
        return _check_bytes(name, source.tensors[name], result.tensors[name], plan.moves.get(name), folder)

    one_by_one = (name for names in _runs(plan, result) if not _same_run(names, source, result) for name in names)
    wild = {name: count for name in one_by_one if (count := check(name))}
    scores = _scores(plan, result.tensors, folder)
    return {
        "model_type": plan.qk.rotary.model_type,
        "from": {"format": source.format, "layout": plan.layouts[0], "why": source.why},
        "to": {"format": plan.format, "layout": plan.layouts[1]},
        "tensors": {"byte_identical": len(source.tensors) - len(plan.moves), "moved": len(plan.moves)},
        "not_finite": wild,
        "moved": {name: move.what for name, move in plan.moves.items()},
        "scores": scores,
    }


def _runs(plan: ConversionPlan, result: Source) -> Iterator[list[str]]:
    """The tensors; those that stay and follow one another on both sides in one, as long as they have a few MB."""
    held: list[str] = []
    size = 0
    for name, tensor in plan.source.tensors.items():
        after = held and name not in plan.moves and held[-1] not in plan.moves and size + tensor.size <= CHUNK
        if held and not (after and all(_follows(side.tensors, held[-1], name) for side in (plan.source, result))):
            yield held
            held, size = [], 0
        held.append(name)
        size += tensor.size
    if held:
        yield held


def _follows(tensors: Mapping[str, Tensor], first: str, second: str) -> bool:
    """Whether two tensors of one type lie one behind the other in a file."""
    a, b = tensors[first], tensors[second]
    return isinstance(a, Stored) and isinstance(b, Stored) and a.dtype == b.dtype and follows(a, b)


def _same_run(names: list[str], source: Source, result: Source) -> bool:
    """Whether several tensors are the same bytes on both sides, and finite: then none needs a look of its own."""
    if len(names) == 1:
        return False
    whole = [_joined([side.tensors[name].parts[0] for name in names]) for side in (source, result)]
    ours, theirs = (load(tensor).reshape(-1) for tensor in whole)
    return np.array_equal(ours, theirs) and not not_finite(ours, whole[0].dtype)


def _joined(parts: list[Stored]) -> Stored:
    """What lies one behind the other, as one row of bytes."""
    size = sum(part.size for part in parts)
    return Stored(parts[0].dtype, (size,), parts[0].file, parts[0].offset, size)


def _check_names(source: Source, result: Source, folder: Path) -> None:
    if lost := sorted(source.tensors.keys() ^ result.tensors.keys()):
        raise ValueError(f"{folder}: {lost[0]}: must be on both sides, and is on one")
    for name, tensor in source.tensors.items():
        other = result.tensors[name]
        if (tensor.dtype, tensor.shape) != (other.dtype, other.shape):
            raise ValueError(
                f"{folder}: {name}: must be {tensor.dtype} {list(tensor.shape)}, got {other.dtype} {list(other.shape)}"
            )


def _check_bytes(name: str, source: Tensor, result: Tensor, move: Move | None, folder: Path) -> int:
    """The number of values that are not finite; ``ValueError`` if the bytes are not the same ones."""
    back = None if move is None else Move(move.axis, array(INT64, inverse(np.asarray(move.order)).tobytes()), "")
    theirs = load(source).reshape(-1)
    if not np.array_equal(theirs, reordered(result, back)):
        raise ValueError(f"{folder}: {name}: its bytes are not those of the source; nothing was put in place")
    return not_finite(theirs, source.dtype)


def _scores(plan: ConversionPlan, result: Mapping[str, Tensor], folder: Path) -> dict[str, Any]:
    """The largest difference of scores in every attention, as a share of its largest score."""
    shown: dict[str, float] = {}
    left_out: list[str] = []
    for attention in plan.qk.attentions:
        before, after = (with_pairs(attention.spec.layout, word) for word in plan.layouts)
        difference = score_difference(attention, (plan.source.tensors, before), (result, after))
        if difference is None:
            left_out.append(attention.name)
        elif not difference <= TOLERANCE:
            raise ValueError(
                f"{folder}: {attention.name}: attention scores of both sides must agree within {TOLERANCE} of the "
                f"largest, got {difference:.3g}; nothing was put in place"
            )
        else:
            shown[attention.name] = difference
    return {"largest_difference": max(shown.values(), default=0.0), "attentions": shown, "left_out": left_out}


# dtype -> integer of its width, its bits without the sign, the least of them that is infinite or NaN
SPECIAL = {
    "BF16": (np.uint16, 0x7FFF, 0x7F80), "F16": (np.uint16, 0x7FFF, 0x7C00), "F32": (np.uint32, 2**31 - 1, 0x7F800000),
    "F64": (np.uint64, 2**63 - 1, 0x7FF0000000000000), "F8_E5M2": (np.uint8, 0x7F, 0x7C),
    "F8_E4M3": (np.uint8, 0x7F, 0x7F),
}  # fmt: skip


def not_finite(data: npt.NDArray[np.uint8], dtype: str) -> int:
    """How many values in raw bytes are NaN or infinite.

    >>> not_finite(np.array([1.0, np.inf, np.nan], dtype=np.float32).view(np.uint8), "F32")
    2
    """
    if dtype not in SPECIAL or not data.size:
        return 0
    kind, mask, least = SPECIAL[dtype]
    values = data.view(kind) & kind(mask)
    return int(np.count_nonzero(values >= least)) if values.max() >= least else 0
