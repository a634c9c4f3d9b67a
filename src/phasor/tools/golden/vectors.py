"""The folder of golden vectors: its files, their seal, and how it is read."""

import difflib
import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...support.json_files import read_json
from ...support.regular_files import read_file
from .layer_kinds import Kind

FORMAT = "phasor golden vectors 2"
VECTORS = "vectors.safetensors"
DESCRIPTION = "vectors.json"
AGAIN = "write the vectors again"


@dataclass(frozen=True)
class Tolerance:
    """``|got - expected| <= absolute + relative * |expected| + per_radian * |angle|``."""

    absolute: float = 0.0
    relative: float = 0.0
    per_radian: float = 0.0


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
    """The bytes of a safetensors file; its order is fixed, so equal tensors give equal bytes.

    bfloat16 is stored as float32, which holds every value of it: numpy, and other readers, know no bfloat16.
    """
    stored = {name: t.float() if t.dtype == torch.bfloat16 else t for name, t in tensors.items()}
    data: bytes = _safetensors().save({name: t.contiguous().clone() for name, t in stored.items()})
    return data


def sealed(data: dict[str, Any], vectors: bytes) -> dict[str, Any]:
    """The description with the SHA-256 of both files: of the tensors, and of what it says itself."""
    return {**data, "sha256": {VECTORS: hashlib.sha256(vectors).hexdigest(), DESCRIPTION: _digest(data)}}


def _digest(data: dict[str, Any]) -> str:
    text = json.dumps({key: value for key, value in data.items() if key != "sha256"}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def read_vectors(source: str | os.PathLike[str]) -> Vectors:
    """The folder written by `phasor.golden.write`, or one of its files. ``ValueError`` if a bit of it has changed."""
    path = Path(source)
    folder = path if path.is_dir() else path.parent
    description = folder / DESCRIPTION
    if not description.is_file():
        raise ValueError(f"vectors must be a folder written by phasor golden, with {DESCRIPTION}, got {str(source)!r}")
    try:
        data = read_json(description)
    except ValueError as error:
        raise ValueError(f"vectors: {error}; {AGAIN}") from None
    if (written := data.get("format")) != FORMAT:
        raise ValueError(f"vectors: {description} must have the format {FORMAT!r}, got {_cut(written)}; {AGAIN}")
    seal = data.get("sha256")
    if not isinstance(seal, dict) or seal.get(DESCRIPTION) != _digest(data):
        raise ValueError(f"vectors: {description} is not as it was written (its sha256 differs); {AGAIN}")
    content = read_bytes(folder / VECTORS, "vectors")
    if seal.get(VECTORS) != hashlib.sha256(content).hexdigest():
        raise ValueError(f"vectors: {folder / VECTORS} is not as it was written (its sha256 differs); {AGAIN}")
    tensors = tensors_of(content, folder / VECTORS, "vectors")
    kinds = [Kind.from_dict(kind) for kind in data["kinds"]]
    stored = {name: tensors[name].to(getattr(torch, entry["dtype"])) for name, entry in data["tensors"].items()}
    return Vectors({kind.name: kind for kind in kinds}, stored, data)


def read_other(source: str | os.PathLike[str] | dict[str, Tensor], golden: Vectors) -> dict[str, Tensor]:
    """A safetensors file, all of a folder, or the tensors themselves; ``ValueError`` for what cannot be compared."""
    tensors = dict(source) if isinstance(source, dict) else _read_files(source)
    if not tensors:
        raise ValueError("other must hold at least one tensor by the name it has in the vectors, got none")
    for name, tensor in tensors.items():
        _check(name, tensor, golden)
    return tensors


def _read_files(source: str | os.PathLike[str]) -> dict[str, Tensor]:
    path = Path(source)
    if not path.exists():
        raise ValueError(f"other must be a safetensors file or a folder of them, got {str(source)!r}, which is absent")
    files = sorted(path.glob("*.safetensors")) if path.is_dir() else [path]
    tensors: dict[str, Tensor] = {}
    for file in files:
        more = tensors_of(read_bytes(file, "other"), file, "other")
        if twice := sorted(set(tensors) & set(more)):
            raise ValueError(f"other: {twice[0]} stands in two files of {str(source)!r}; keep one")
        tensors |= more
    if not tensors:
        raise ValueError(f"other must hold tensors, got {str(source)!r} with none")
    return tensors


def _check(name: Any, tensor: Any, golden: Vectors) -> None:
    if not isinstance(tensor, Tensor) or tensor.is_complex() or tensor.dtype == torch.bool:
        got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        raise ValueError(f"other: {name} must be a tensor of real numbers, got {got}")
    if name not in golden.tensors:
        near = difflib.get_close_matches(str(name), golden.tensors, 1, 0.3)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        shown = repr(name if len(str(name)) <= 200 else str(name)[:200] + "…")
        raise ValueError(f"other: {shown} must be the name of a tensor of the vectors{hint}")


def read_bytes(path: Path, what: str) -> bytes:
    try:
        return read_file(path)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from None


def tensors_of(content: bytes, path: Path, what: str) -> dict[str, Tensor]:
    """The tensors of a safetensors file by name."""
    library = _safetensors()
    try:
        tensors: dict[str, Tensor] = library.load(content)
    except Exception as error:  # the library has one class of its own for every fault of a file
        raise ValueError(f"{what}: {str(path)!r} is not a safetensors file ({_cut(error)})") from None
    return tensors


def _cut(value: Any) -> str:
    """What stands in somebody's file, short enough for one line."""
    text = str(value) if isinstance(value, Exception) else repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def _safetensors() -> Any:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise ValueError(f"golden vectors need {error.name}; install it with: pip install safetensors") from None
    return safetensors.torch
