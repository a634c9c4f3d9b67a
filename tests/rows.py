"""The rows of `phasor.models.families` by what they are: families of text models of transformers, and towers."""

from typing import Any

from phasor.models.families import ROWS
from phasor.models.reading.composite import Composite
from phasor.models.reading.custom_parser import Line, Odd
from phasor.models.reading.grid import Grid
from phasor.models.reading.indexer import Indexer
from phasor.models.reading.keys import Keys
from phasor.models.reading.model import ModelRotary
from phasor.models.reading.model_row import Row
from phasor.models.reading.non_rotary import Unreadable
from phasor.models.reading.text import Text
from phasor.models.weights import Weights

OTHER_NAMES = {"deepseek_ref", "kimi_k2", "phi4mm", "roformer_v2"}  # of the same code

FAMILIES: dict[str, Text] = {
    name: row
    for name, row in ROWS.items()
    if type(row) is Text and not row.frame and any(row.sizes) and name not in OTHER_NAMES
}
TOWERS: dict[str, Any] = {name: row for name, row in ROWS.items() if isinstance(row, Grid | Line | Odd)}
UNREADABLE = {name: row.reason for name, row in ROWS.items() if isinstance(row, Unreadable)}
INDEXERS = {name: inner for name, row in FAMILIES.items() for inner in row.inner.values() if isinstance(inner, Indexer)}
REMOTE = {name for name, row in ROWS.items() if type(row) is Text and not any(row.sizes)}
WEIGHTS = {n: w for n, row in ROWS.items() if isinstance(w := getattr(row, "weights", None), Weights)}
NO_WEIGHTS = {n: w for n, row in ROWS.items() if isinstance(w := getattr(row, "weights", None), str)}
PUBLISHED = {n: row.published for n, row in ROWS.items() if isinstance(row, Row) and row.published is not None}
RULES = {name: row.positions for name, row in ROWS.items() if getattr(row, "positions", None) is not None}


def read_tower(name: str, data: dict[str, Any], path: str = "") -> tuple[ModelRotary, Keys]:
    """A tower by its row alone, whatever stands around it."""
    return TOWERS[name].read(name, data, f"{path}." if path else "", {})


def tower_of(data: dict[str, Any], path: str, parent: dict[str, Any]) -> str | None:
    """The tower that a config at a dotted path inside ``parent`` is found to be; None for any other."""
    around, _, key = path.rpartition(".")
    whole: dict[str, Any] = {**parent, key: data} if path else data
    for step in reversed(around.split(".") if around else []):
        whole = {step: whole}
    composite = Composite(whole, ROWS)
    if path and path not in composite.parts:
        return None
    name = composite.name(path)
    return name if name in TOWERS or name in UNREADABLE else None
