"""Files that others wrote, read without surprises: sizes before allocations, plain names."""

import os
from pathlib import Path
from typing import Any

from ...support.json_files import read_json
from ...support.regular_files import opened


def size_of(path: Path) -> int:
    """The bytes of a regular file."""
    with opened(path) as fd:
        return os.fstat(fd).st_size


def read_at(fd: int, offset: int, size: int, path: Path) -> bytes:
    """``size`` bytes from ``offset``; ``ValueError`` if the file ends before."""
    pieces = []
    while size:
        piece = os.pread(fd, min(size, 2**30), offset)
        if not piece:
            raise ValueError(f"{path}: ends at byte {offset}, {size} bytes early")
        pieces.append(piece)
        offset, size = offset + len(piece), size - len(piece)
    return b"".join(pieces)


def check_json(folder: Path) -> None:
    """``ValueError`` for a config or tokenizer of a folder that is no JSON object: what transformers does not say."""
    for path in (folder / name for name in ("config.json", "tokenizer_config.json", "tokenizer.json")):
        if path.exists():
            read_json(path)


def instead_of_weights(data: bytes) -> str:
    """For errors, after what a file that begins so must be: what stands there in place of weights, and the way out.

    >>> instead_of_weights(b"version https://git-lfs.github.com/spec/v1")
    '; it is a pointer of Git LFS, not the weights: fetch them with git lfs pull'
    """
    if data.startswith(b"version https://git-lfs"):
        return "; it is a pointer of Git LFS, not the weights: fetch them with git lfs pull"
    if data.lstrip()[:5].lower() in (b"<!doc", b"<html", b"<head", b"<?xml"):
        return "; it is a page of the web, not the weights: fetch them anew"
    return ""


def plain_name(name: Any, where: str) -> str:
    """The name of a file in the same folder, which is all that an index may name; ``where``: the index and the tensor.

    >>> plain_name("model-00001-of-00002.safetensors", "index.json: lm_head.weight")
    'model-00001-of-00002.safetensors'
    """
    plain = isinstance(name, str) and name.isprintable() and not {*"/\\"} & {*name} and 0 < len(name.encode()) < 256
    if not plain or name in (".", ".."):
        raise ValueError(f"{where}: must name a plain file of its own folder, got {name!r:.80}")
    return name
