"""Reading and writing: the vectors with their description, and the tensors of another implementation."""

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .kinds import Kind
from .tensors import Tolerance

FORMAT = "phasor golden vectors 1"
VECTORS = "vectors.safetensors"
DESCRIPTION = "vectors.json"


@dataclass(frozen=True)
class Vectors:
    """Golden vectors as read from their folder: the kinds, every tensor by its whole name, and the description."""

    kinds: dict[str, Kind]
    tensors: dict[str, Tensor]
    data: dict[str, Any]

    def kind_of(self, name: str) -> Kind:
        return self.kinds[self.data["tensors"][name]["kind"]]

    def tolerance(self, name: str) -> Tolerance:
        return Tolerance(**self.data["tensors"][name]["tolerance"])

    def short(self, name: str) -> str:
        """The name without that of the kind."""
        return name.removeprefix(f"{self.kind_of(name).name}.")


def as_bytes(tensors: dict[str, Tensor]) -> bytes:
    """The bytes of a safetensors file; its order is fixed, so equal tensors give equal bytes."""
    data: bytes = _safetensors().save({name: t.contiguous().clone() for name, t in tensors.items()})
    return data


def read_vectors(source: str | os.PathLike[str]) -> Vectors:
    """The folder written by `phasor.golden.write`, or one of its files."""
    path = Path(source)
    folder = path if path.is_dir() else path.parent
    description = folder / DESCRIPTION
    if not description.is_file():
        raise ValueError(f"vectors must be a folder written by phasor golden, with {DESCRIPTION}, got {str(source)!r}")
    try:
        data = json.loads(description.read_bytes())
    except ValueError as error:
        raise ValueError(f"vectors: {description} is not JSON ({error}); write the vectors again") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        found = data.get("format") if isinstance(data, dict) else type(data).__name__
        raise ValueError(f"vectors: {description} must have the format {FORMAT!r}, got {found!r}")
    tensors = _load(folder / VECTORS, "vectors")
    if set(tensors) != set(data["tensors"]):
        raise ValueError(f"vectors: {VECTORS} and {DESCRIPTION} do not name the same tensors; write them again")
    kinds = [Kind.from_dict(kind) for kind in data["kinds"]]
    order = {name: tensors[name] for name in data["tensors"]}
    return Vectors({kind.name: kind for kind in kinds}, order, data)


def read_other(source: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of another implementation: a safetensors file, or all of a folder."""
    path = Path(source)
    if not path.exists():
        raise ValueError(f"other must be a safetensors file or a folder of them, got {str(source)!r}, which is absent")
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    found: dict[str, Tensor] = {}
    for file in files:
        tensors = _load(file, "other")
        if twice := sorted(set(found) & set(tensors)):
            raise ValueError(f"other: {twice[0]} stands in two files of {str(source)!r}; keep one")
        found |= tensors
    if not found:
        raise ValueError(f"other must hold tensors, got {str(source)!r} with none")
    return found


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
    if ".cos" in name or ".sin" in name:
        x = _per_pair(name, x, wanted)
    if x.shape == wanted:
        return x, False
    if len(wanted) == 4 and x.ndim == 4 and x.transpose(1, 2).shape == wanted:
        return x.transpose(1, 2), True
    raise ValueError(f"other: {name} must have the shape {list(wanted)}, got {list(got.shape)}")


def _per_pair(name: str, x: Tensor, wanted: tuple[int, ...]) -> Tensor:
    pairs = wanted[-1]
    if x.shape[-1] != 2 * pairs:
        return x
    for a, b in ((x[..., :pairs], x[..., pairs:]), (x[..., 0::2], x[..., 1::2])):
        if torch.equal(a.nan_to_num(), b.nan_to_num()):
            return a
    raise ValueError(f"other: {name} must have one value per pair, {pairs}, or each of them twice, got {2 * pairs}")


def _load(path: Path, what: str) -> dict[str, Tensor]:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ValueError(f"{what}: cannot read {str(path)!r} ({error.strerror})") from None
    library = _safetensors()
    try:
        tensors: dict[str, Tensor] = library.load(data)
    except Exception as error:  # the library has one class of its own for every fault of a file
        raise ValueError(f"{what}: {str(path)!r} is not a safetensors file ({error})") from None
    return tensors


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise ValueError(f"golden vectors need {error.name}; install it with: pip install safetensors") from None
    return safetensors.torch
