"""The tensors of another implementation: read, and brought into the shape of the vectors."""

import difflib
import math
import os
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..vectors import Vectors, read_bytes, tensors_of


def read_given(source: str | os.PathLike[str] | dict[str, Tensor], golden: Vectors) -> dict[str, Tensor]:
    """A safetensors file, all of a folder, or the tensors themselves; ``ValueError`` for what cannot be compared."""
    given = dict(source) if isinstance(source, dict) else _read(source)
    if not given:
        raise ValueError("other must hold at least one tensor by the name it has in the vectors, got none")
    for name, tensor in given.items():
        _check(name, tensor, golden)
    return given


def _read(source: str | os.PathLike[str]) -> dict[str, Tensor]:
    path = Path(source)
    if not path.exists():
        raise ValueError(f"other must be a safetensors file or a folder of them, got {str(source)!r}, which is absent")
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    found: dict[str, Tensor] = {}
    for file in files:
        tensors = tensors_of(read_bytes(file, "other"), file, "other")
        if twice := sorted(set(found) & set(tensors)):
            raise ValueError(f"other: {twice[0]} stands in two files of {str(source)!r}; keep one")
        found |= tensors
    if not found:
        raise ValueError(f"other must hold tensors, got {str(source)!r} with none")
    return found


def _check(name: Any, tensor: Any, golden: Vectors) -> None:
    if not isinstance(tensor, Tensor) or tensor.is_complex() or tensor.dtype == torch.bool:
        got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f"other: {name} must be a tensor of real numbers, got {got}")
    if name not in golden.tensors:
        near = difflib.get_close_matches(str(name), golden.tensors, 1, 0.3)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        shown = repr(name if len(str(name)) <= 200 else str(name)[:200] + "…")
        raise ValueError(f"other: {shown} must be the name of a tensor of the vectors{hint}")


def fitted(name: str, got: Tensor, expected: Tensor) -> tuple[Tensor, bool]:
    """``got`` as float64 in the shape of ``expected``, and whether its heads and tokens had to be swapped.

    A missing batch axis is added, and cos and sin given for every channel are cut to one per pair.
    """
    wanted = tuple(expected.shape)
    x = got.double()
    if x.shape != wanted and math.prod(x.shape[: x.ndim - len(wanted)]) == 1 and x.ndim > len(wanted):
        x = x.reshape(x.shape[x.ndim - len(wanted) :])
    if x.ndim == len(wanted) - 1 and wanted[0] == 1:
        x = x.unsqueeze(0)
    pairwise = ".cos" in name or ".sin" in name
    if pairwise and x.ndim:
        x = _per_pair(name, x, wanted)
    if x.shape == wanted:
        return x, False
    if len(wanted) == 4 and x.ndim == 4 and x.transpose(1, 2).shape == wanted:
        return x.transpose(1, 2), True
    hint = ""
    if (pairwise or name.endswith("inv_freq")) and x.ndim == len(wanted) and x.shape[:-1] == wanted[:-1]:
        hint = f"; as if {2 * x.shape[-1]} channels turned, and {2 * wanted[-1]} must"
    raise ValueError(f"other: {name} must have the shape {list(wanted)}, got {list(got.shape)}{hint}")


def _per_pair(name: str, x: Tensor, wanted: tuple[int, ...]) -> Tensor:
    pairs = wanted[-1]
    if x.shape[-1] != 2 * pairs:
        return x
    for a, b in ((x[..., :pairs], x[..., pairs:]), (x[..., 0::2], x[..., 1::2])):
        if torch.equal(a.nan_to_num(), b.nan_to_num()):
            return a
    raise ValueError(f"other: {name} must have one value per pair, {pairs}, or each of them twice, got {2 * pairs}")
