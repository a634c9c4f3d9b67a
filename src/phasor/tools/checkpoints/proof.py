"""The proof of a conversion: both sides read again. Tensors that stay are equal byte for byte; tensors that move,
brought back by the inverse order, give the source's bytes."""

from array import array
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from ...support.regular_files import opened
from .formats import read
from .opening import read_at
from .permutation import INT64, inverse
from .plan import ConversionPlan
from .qk_tensors import Move
from .reordering import load, reordered
from .source import Source
from .stored import Stored


def prove(plan: ConversionPlan, folder: Path) -> dict[str, Any]:
    """Compare the converted files in ``folder`` with the source of ``plan``; ``ValueError`` says what is not equal."""
    source, result = plan.source, read(folder, allow_pickle=True)
    _check_names(source, result, folder)
    with _LastFile() as ours, _LastFile() as theirs:
        for name, tensor in source.tensors.items():
            move = plan.moves.get(name)
            back = None if move is None else Move(move.axis, _undone(move.order), "")
            if not np.array_equal(load(tensor, ours).reshape(-1), reordered(result.tensors[name], back, read=theirs)):
                raise ValueError(f"{folder}: {name}: its bytes are not those of the source; nothing was put in place")
    return {
        "model_type": plan.qk.rotary.model_type,
        "from": {"format": source.kind, "layout": plan.layouts[0], "why": source.why},
        "to": {"format": plan.kind, "layout": plan.layouts[1]},
        "tensors": {"byte_identical": len(source.tensors) - len(plan.moves), "moved": len(plan.moves)},
        "moved": {name: move.what for name, move in plan.moves.items()},
    }


def _undone(order: "array[int]") -> "array[int]":
    return array(INT64, inverse(np.asarray(order)).tobytes())


class _LastFile(ExitStack):
    """Reads parts, and opens a file anew only where another one was read before."""

    path: Path | None = None
    fd: int = -1

    def __call__(self, part: Stored) -> bytes:
        if part.file != self.path:
            self.close()
            self.path, self.fd = part.file, self.enter_context(opened(part.file))
        return read_at(self.fd, part.offset, part.size, part.file)


def _check_names(source: Source, result: Source, folder: Path) -> None:
    if lost := sorted(source.tensors.keys() ^ result.tensors.keys()):
        raise ValueError(f"{folder}: {lost[0]}: must be on both sides, and is on one")
    for name, tensor in source.tensors.items():
        other = result.tensors[name]
        if (tensor.dtype, tensor.shape) != (other.dtype, other.shape):
            raise ValueError(
                f"{folder}: {name}: must be {tensor.dtype} {list(tensor.shape)}, got {other.dtype} {list(other.shape)}"
            )
