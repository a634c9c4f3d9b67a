"""JSON that others wrote, read without surprises: an object whose keys stand once, no larger than a model has."""

import json
import os
from pathlib import Path
from typing import Any

from .checks import keys_once
from .regular_files import opened

MAX_JSON = 100 * 2**20


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; ``ValueError`` names the file for anything else."""
    with opened(path) as fd, open(fd, "rb", closefd=False) as file:
        if (size := os.fstat(fd).st_size) > MAX_JSON:
            raise ValueError(f"{path}: must have at most {MAX_JSON} bytes to be a JSON file of a model, got {size}")
        return parse_json(file.read(), path)


def parse_json(data: bytes, path: Path) -> dict[str, Any]:
    """The bytes of a JSON object as a dictionary; ``path`` is named in errors."""
    try:
        value = json.loads(data.decode("utf-8-sig"), object_pairs_hook=keys_once)  # some editors put a mark first
    except RecursionError:
        raise ValueError(f"{path}: is nested too deeply to be a JSON file of a model") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: is not JSON in UTF-8: {error}"[:400]) from None
    except ValueError as error:  # a key twice, an integer of thousands of digits
        raise ValueError(f"{path}: {error}"[:400]) from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: must hold a JSON object, got {type(value).__name__}")
    return value
