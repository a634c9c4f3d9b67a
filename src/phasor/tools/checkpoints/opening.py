"""Files that others wrote, read without surprises: sizes before allocations, JSON objects, plain names."""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...support.checks import keys_once
from ...support.regular_files import opened

if TYPE_CHECKING:  # a plan does without numpy
    pass

MAX_JSON = 100 * 2**20


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


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object whose keys stand once; ``ValueError`` names the file for anything else."""
    with opened(path) as fd:
        size = os.fstat(fd).st_size
        if size > MAX_JSON:
            raise ValueError(f"{path}: must have at most {MAX_JSON} bytes to be a JSON file of a model, got {size}")
        return parse_json(read_at(fd, 0, size, path), path)


def parse_json(data: bytes, path: Path) -> dict[str, Any]:
    """The bytes of a JSON object as a dictionary; ``path`` is named in errors."""
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=keys_once)
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply to be a JSON file of a model") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: is not JSON in UTF-8: {error}"[:400]) from None
    except ValueError as error:  # a key twice, an integer of thousands of digits
        raise ValueError(f"{path}: {error}"[:400]) from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: must hold a JSON object, got {type(value).__name__}")
    return value


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
