"""Checkpoints that a killed process cannot damage: one file, written beside, synced, renamed."""

import io
import json
import os
import pickle
from pathlib import Path
from typing import Any

import torch

PARTIAL = ".partial"


def write_atomically(path: Path, data: bytes) -> None:
    """``path`` holds either what it held before or all of ``data``, whenever the process or the machine stops.

    Raises ``OSError`` (disk full, no permission) and leaves ``path`` as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + PARTIAL)
    try:
        with open(partial, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OSError(
            error.errno, f"cannot write ({error.strerror}); what was there before is untouched", str(path)
        ) from error
    if hasattr(os, "O_DIRECTORY"):  # the rename itself must reach the disk too
        folder = os.open(path.parent, os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def write_json(path: Path, data: Any) -> None:
    write_atomically(path, (json.dumps(data, indent=1) + "\n").encode())


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} must be JSON as written by the lab, got: {error}; delete it and run again") from None


def save(path: Path, state: dict[str, Any]) -> None:
    """Tensors and plain data to one file."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    write_atomically(path, buffer.getvalue())


def load(path: Path) -> dict[str, Any]:
    """What `save` wrote. Nothing in the file is executed. Raises ``ValueError`` if it is damaged or something else."""
    data = path.read_bytes()
    try:
        state = torch.load(io.BytesIO(data), weights_only=True, map_location="cpu")
    except (RuntimeError, EOFError, ValueError, KeyError, pickle.UnpicklingError) as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise ValueError(f"{path} must be a checkpoint of the lab, got: {reason}; delete it to start over") from None
    if not isinstance(state, dict) or not {"run", "step", "model"} <= state.keys():
        raise ValueError(f"{path} must be a checkpoint of the lab, got another file; delete it to start over")
    return state
