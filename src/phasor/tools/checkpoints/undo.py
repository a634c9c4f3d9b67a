"""The journal of a conversion in place: all bytes that will change, kept until the last of them is on the disk.

A file ``phasor-in-place.journal`` in the folder of the weights: eight bytes of length, a JSON object, the original
bytes of every tensor that moves. It has this name only when it is whole. Until it is, nothing was touched; once it is,
the conversion is done again from it, however far it came.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ...support.whole_files import sync_folder
from .disk import settle
from .opening import opened, parse_json, read_at
from .output import Reordered
from .qk_tensors import Move
from .stored import Stored
from .stream import Tell, blocks, copy, write_all

JOURNAL = "phasor-in-place.journal"


class Change(NamedTuple):
    """A tensor in the weights, its original bytes in the journal, and how they are to lie."""

    here: Stored
    before: Stored
    move: Move


def write_journal(folder: Path, about: dict[str, Any], moved: Mapping[str, tuple[Stored, Move]], tell: Tell) -> None:
    """Keep the original bytes of tensors and what a later run must know; on the disk when this returns."""
    orders: dict[bytes, int] = {}
    entries = [
        {
            "tensor": name, "file": tensor.file.name, "dtype": tensor.dtype, "shape": tensor.shape,
            "offset": tensor.offset, "size": tensor.size, "axis": move.axis, "what": move.what,
            "order": orders.setdefault(move.order.tobytes(), len(orders)),
        }
        for name, (tensor, move) in moved.items()
    ]  # fmt: skip
    listed = [np.frombuffer(order, np.int64).tolist() for order in orders]
    head = json.dumps({**about, "entries": entries, "orders": listed}).encode()
    partial = folder / f"{JOURNAL}.partial"
    fd = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        write_all(fd, len(head).to_bytes(8, "little") + head, lambda done: None)
        for tensor, _ in moved.values():
            with opened(tensor.file) as source:
                copy(source, tensor.offset, fd, tensor.size, tensor.file, tell)
        os.fsync(fd)
    except BaseException:
        partial.unlink()
        raise
    finally:
        os.close(fd)
    os.rename(partial, folder / JOURNAL)
    sync_folder(folder)


def read_journal(folder: Path) -> tuple[dict[str, Any], dict[str, Change]]:
    """What `write_journal` kept."""
    path = folder / JOURNAL
    with opened(path) as fd:
        size = int.from_bytes(read_at(fd, 0, 8, path), "little")
        about = parse_json(read_at(fd, 8, min(size, os.fstat(fd).st_size), path), path)
    at, changes = 8 + size, {}
    orders = [np.array(order, np.int64) for order in about["orders"]]
    for e in about["entries"]:
        shape = tuple(e["shape"])
        changes[e["tensor"]] = Change(
            Stored(e["dtype"], shape, folder / e["file"], e["offset"], e["size"]),
            Stored(e["dtype"], shape, path, at, e["size"]),
            Move(e["axis"], orders[e["order"]], e["what"]),
        )
        at += e["size"]
    return about, changes


def apply(changes: Mapping[str, Change], tell: Tell, *, back: bool = False) -> None:
    """Write every tensor from its original bytes, reordered, or as it was; on the disk when this returns."""
    files = sorted({change.here.file for change in changes.values()})
    settle((_written(changes, file, tell, back), None) for file in files)


def _written(changes: Mapping[str, Change], file: Path, tell: Tell, back: bool) -> int:
    """The file, open, with its tensors written and nothing synced."""
    fd = os.open(file, os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        for change in (c for c in changes.values() if c.here.file == file):
            os.lseek(fd, change.here.offset, os.SEEK_SET)
            if back:
                with opened(change.before.file) as journal:
                    copy(journal, change.before.offset, fd, change.before.size, file, tell)
            else:
                for block in blocks(Reordered(change.before, change.move)):
                    write_all(fd, block.data, tell)
    except BaseException:
        os.close(fd)
        raise
    return fd
