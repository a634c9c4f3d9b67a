"""The rows of `phasor.models.rows` by what they are: families of text models of transformers, and towers."""

from typing import Any

from phasor.models.reading.composite import ConfigTree
from phasor.models.reading.indexer import Indexer
from phasor.models.reading.keys import Keys
from phasor.models.reading.row import Row, Unreadable
from phasor.models.reading.text import TextModel
from phasor.models.reading.tower import CustomParser, GridTower, SequenceTower
from phasor.models.rows import ROWS
from phasor.models.weights import Weights
from phasor.rotary.model_rotary import ModelRotary

FAMILIES: dict[str, TextModel] = {
    name: row for name, row in ROWS.items() if type(row) is TextModel and row.in_transformers and not row.composite
}
TOWERS: dict[str, Any] = {
    name: row
    for name, row in ROWS.items()
    if isinstance(row, GridTower | SequenceTower | CustomParser) and row.in_transformers
}
UNREADABLE = {name: row.reason for name, row in ROWS.items() if isinstance(row, Unreadable)}
INDEXERS = {
    name: inner for name, row in FAMILIES.items() for inner in row.sub_models.values() if isinstance(inner, Indexer)
}
REMOTE = {name for name, row in ROWS.items() if isinstance(row, TextModel) and not row.in_transformers}
WEIGHTS = {n: w for n, row in ROWS.items() if isinstance(w := getattr(row, "weights", None), Weights)}
NO_WEIGHTS = {n: w for n, row in ROWS.items() if isinstance(w := getattr(row, "weights", None), str)}
PUBLISHED = {n: row.published for n, row in ROWS.items() if isinstance(row, Row) and row.published is not None}
RULES = {name: row.positions for name, row in ROWS.items() if getattr(row, "positions", None) is not None}


def read_tower(name: str, data: dict[str, Any], path: str = "") -> tuple[ModelRotary, Keys]:
    """A tower by its row alone, whatever stands around it."""
    return TOWERS[name].read(name, data, f"{path}." if path else "")


def tower_of(data: dict[str, Any], path: str, parent: dict[str, Any]) -> str | None:
    """The tower that a config at a dotted path inside ``parent`` is found to be; None for any other."""
    around, _, key = path.rpartition(".")
    whole: dict[str, Any] = {**parent, key: data} if path else data
    for step in reversed(around.split(".") if around else []):
        whole = {step: whole}
    composite = ConfigTree(whole, ROWS)
    if path and path not in composite.parts:
        return None
    name = composite.name(path)
    return name if name in TOWERS or name in UNREADABLE else None
