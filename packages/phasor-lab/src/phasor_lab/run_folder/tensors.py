"""Tensors and plain data in one file that is read whole or refused: safetensors, with a SHA-256 of all it holds."""

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from phasor.support.number_text import counted
from phasor.support.regular_files import other_kind
from phasor.support.whole_files import write_whole

from .files import conform, parsed, shown

M = TypeVar("M", bound=nn.Module)
KEY = "phasor"  # the only one of the metadata: of several, safetensors would write any first
SEALED = {"sha256": str, "about": str}


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Any) -> None:
    """Write the tensors, which may not share memory, and ``about``, which JSON can hold: equal content, equal bytes."""
    from safetensors.torch import save

    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(about)
    write_whole(path, save(stored, metadata={KEY: json.dumps({"sha256": digest(stored, text), "about": text})}))


def read_tensors(path: Path, what: str, way_out: str, pattern: Any = object) -> tuple[dict[str, Tensor], Any]:
    """What `write_tensors` wrote, the plain data like ``pattern`` (`conform`).

    Raises ``ValueError`` if a bit of it has changed, if it is another file, or if a value is infinite or no number.
    """
    from safetensors import SafetensorError, safe_open

    # the library waits for pipes, and does not name folders
    if path.exists() and (other := other_kind(path.stat().st_mode)):
        raise damaged(path, what, other, way_out)
    if path.is_symlink() and not path.exists():
        raise damaged(path, what, "a link that leads nowhere", way_out)
    try:
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dictionary)
        if set(metadata) != {KEY}:
            raise ValueError(f"metadata with the keys {shown(sorted(metadata))}, where phasor writes {KEY!r} alone")
        sealed = conform(parsed(metadata[KEY]), SEALED)
        if digest(tensors, sealed["about"]) != sealed["sha256"]:
            raise ValueError("content that has changed since it was written (SHA-256)")
        about = conform(parsed(sealed["about"]), pattern)
        if wild := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
            of = counted(wild, "tensor")
            raise ValueError(f"{shown(wild[0])} with values that are infinite or no numbers, in {of}")
        return tensors, about
    except (ValueError, RuntimeError, RecursionError, SafetensorError) as error:
        raise damaged(path, what, error, way_out) from None


def damaged(path: Path, what: str, reason: object, way_out: str) -> ValueError:
    """The error to raise."""
    return ValueError(f"{path} must be {what}, got: {' '.join(str(reason).split())}; {way_out}")


def digest(tensors: Mapping[str, Tensor], text: str) -> str:
    """SHA-256 over names, types, shapes and bytes of tensors in memory, in the order of their names, and a text."""
    sha256 = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        sha256.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        sha256.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return sha256.hexdigest()


def check_like(tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """Raise ``ValueError`` unless the names, shapes and dtypes are those of ``expected``."""
    if missing := expected.keys() - tensors.keys():
        raise ValueError(f"no tensor {min(missing)}, one of {len(missing)} that are missing")
    if unknown := tensors.keys() - expected.keys():
        raise ValueError(f"the tensor {shown(min(unknown))}, which the model does not have")
    for name, tensor in expected.items():
        ours, theirs = ((tuple(t.shape), t.dtype) for t in (tensor, tensors[name]))
        if ours != theirs:
            raise ValueError(
                f"{name} of shape {theirs[0]} and {theirs[1]}, where the model has {ours[0]} and {ours[1]}"
            )


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    """The model's own tensors by name; of weights that are tied the first name only."""
    first: dict[int, str] = {}
    state = model.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if first.setdefault(id(tensor), name) == name}


@torch.no_grad()
def fill(tensors: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Copy tensors of the same names. Raises ``ValueError``, before the first copy, if they do not fit."""
    check_like(saved, tensors)
    for name, tensor in tensors.items():
        tensor.copy_(saved[name])


def filled(make: Callable[[], M], saved: Mapping[str, Tensor]) -> M:
    """The model that ``make`` makes, with the saved tensors. Raises ``ValueError`` if they do not fit.

    Shapes come first: nothing is allocated for a model that the tensors are not of. The random state stays as it was.
    """
    with torch.random.fork_rng(devices=[]):
        with torch.device("meta"):
            sketch = make()
        check_like(saved, tensors_of(sketch))
        model = make()
    fill(tensors_of(model), saved)
    return model
