"""Checkpoints that every process writes its part of, by torch.distributed.checkpoint, in safetensors.

A checkpoint is a folder of its own. ``shards.json`` names the one that is whole, with the sizes of its files, and is
replaced when the next one is whole: a run that is killed while it writes goes on from the one before. All processes
have to see the folder. Any number of them reads it: each what it holds.
"""

import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ..processes import Group
from .files import read_json, write_json

FILE, PREFIX = "shards.json", "shards-"
PATTERN = {"folder": str, "files": dict, "about": dict}
WAY_OUT = "delete it to start over"


def is_there(folder: Path) -> bool:
    return (folder / FILE).exists()


def about(folder: Path, pattern: dict[str, Any]) -> dict[str, Any]:
    """The plain data of the checkpoint. Raises ``ValueError`` if it is damaged."""
    data: dict[str, Any] = read_json(folder / FILE, PATTERN | {"about": pattern})["about"]
    return data


def save(folder: Path, tensors: Mapping[str, Tensor], step: int, about: dict[str, Any], group: Group) -> None:
    """Write what `fill` reads; all processes at once. Raises ``OSError`` and leaves the last checkpoint as it was."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageWriter

    target = folder / f"{PREFIX}{step}"
    with group.alike():
        if group.first:
            shutil.rmtree(target, ignore_errors=True)  # of a run that was killed here
            target.mkdir()
    with group.alike():
        try:
            dcp.save(dict(tensors), storage_writer=HuggingFaceStorageWriter(str(target), save_distributed=True))
        except dcp.CheckpointException as error:
            raise OSError(f"cannot write {target}: {next(iter(error.failures.values()))[0]}") from None
    with group.alike():
        if group.first:
            write_json(folder / FILE, {"folder": target.name, "files": _sizes(target), "about": about})
            _remove_all_but(folder, target.name)


def fill(folder: Path, tensors: Mapping[str, Tensor]) -> None:
    """Copy what was saved into tensors of the same names, plain or in shards of any mesh: each process reads its part.

    Raises ``ValueError`` if a file is missing or damaged, or if the tensors are not those that were saved.
    """
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

    pointer = read_json(folder / FILE, PATTERN)
    target = folder / Path(pointer["folder"]).name
    if _sizes(target) != pointer["files"]:  # of a shard that is missing, torch leaves the rows as they were
        raise ValueError(f"{target} must hold the files that {folder / FILE} names, in their sizes; {WAY_OUT}")
    try:
        with warnings.catch_warnings(action="ignore"):  # that no process group is asked
            dcp.load(dict(tensors), storage_reader=HuggingFaceStorageReader(str(target)), no_dist=True)
    except dcp.CheckpointException as error:
        reason = next(iter(error.failures.values()))[0]
        raise ValueError(f"{target} must hold this training's tensors, got: {reason}; {WAY_OUT}") from None


def remove(folder: Path) -> None:
    """Take the checkpoint away, the name of the whole one first."""
    (folder / FILE).unlink(missing_ok=True)
    _remove_all_but(folder, "")


def _remove_all_but(folder: Path, kept: str) -> None:
    for other in folder.glob(f"{PREFIX}*"):
        if other.is_dir() and other.name != kept:
            shutil.rmtree(other, ignore_errors=True)


def _sizes(folder: Path) -> dict[str, int]:
    return {file.name: file.stat().st_size for file in sorted(folder.glob("*"))}
