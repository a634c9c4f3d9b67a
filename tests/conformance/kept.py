"""Results of a long sweep, one file per model type: a sweep that was stopped goes on where it was."""

import hashlib
import json
import os
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

from found_data import found_data

from .conftest import INSTALLED
from .reached import ROOT, reached

FOLDER = ROOT / ".sweeps"
SWEEPS = {
    "patch": "tests/integrations/sweep.py",
    "doctor": "tests/doctor/healthy.py",
}


@cache
def fingerprint(sweep: str) -> str:
    """Of all that a result depends on: the sweep, the code that it runs, the version of transformers, real configs."""
    found = hashlib.sha256(INSTALLED.encode())
    data = found_data()
    configs = data.glob("configs/*/*.json") if data else ()
    for path in (*sorted(reached(ROOT / SWEEPS[sweep])), *sorted(configs)):
        found.update(path.read_bytes())
    return found.hexdigest()[:16]


def kept(sweep: str, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What ``make`` returns for this code: from its file if it is there, else made now and written."""
    path = FOLDER / sweep / f"{name}.json"
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if found.get("of") == fingerprint(sweep):
            return found
    found = {"of": fingerprint(sweep), **make()}
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(f".{os.getpid()}")
    partial.write_text(json.dumps(found, indent=1), encoding="utf-8")
    partial.replace(path)
    return found


def sliced(names: Iterable[str], start: int, count: int) -> list[str]:
    return sorted(names)[start::count]
