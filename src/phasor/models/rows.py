"""The rows: what `rows.json` says of every model type, made into objects when they are asked for.

``make rows`` compares that file with observed models. In it ``is`` names a class, whose fields stand beside it where
they differ from their defaults; ``rule`` a function of the engine or of `rules`, with its arguments; ``like`` another
row, which the fields beside it change.
"""

import inspect
import json
from collections import UserDict
from dataclasses import MISSING, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from ..positions import Rule
from .reading import axes, layers, planes
from .reading.indexer import Indexer
from .reading.layers import Layers
from .reading.of_timm import OfTimm
from .reading.row import Alias, CompositeModel, NonRotary, PartOf, RotaryFlag, Row, Unreadable
from .reading.text import TextModel
from .reading.text_row import Names, Rope
from .reading.tower import CustomParser, GridTower, NestedModel, SequenceTower
from .rules import after, before, layer_kinds, towers
from .weights import Gguf, Rows, Weights

FILE = Path(__file__).with_name("rows.json")
LLAMA, MISTRAL = "llama", "mistral"  # for whoever writes a config of this type
CLASSES = {
    cls.__name__: cls
    for cls in (
        TextModel, SequenceTower, GridTower, CustomParser, CompositeModel, NonRotary, Unreadable, Alias, Layers, Names,
        OfTimm, Rope, PartOf, RotaryFlag, Indexer, NestedModel, Rule, Weights, Rows, Gguf,
    )
}  # fmt: skip
RULES = {
    name: function
    for module in (axes, layers, planes, after, before, layer_kinds, towers)
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__ and not name.startswith("_")
}
AS_THEY_ARE = ("more", "defaults")  # fields with keys and values of configs


class RowTable(UserDict[str, Row | Alias]):
    """Rows by model type; those of the file are made when they are first asked for.

    >>> table = RowTable({"toy": {"is": "TextModel", "config": "ToyConfig", "axes": {"rule": "alternating"}}})
    >>> table["toy"].config, table["toy"].axes is axes.alternating
    ('ToyConfig', True)
    """

    def __init__(self, stated: dict[str, Any]) -> None:
        super().__init__(stated)
        self.stated = stated

    def __getitem__(self, name: str) -> Row | Alias:
        row: Any = self.data[name]
        if isinstance(row, dict):
            row = self.data[name] = made(row, self.stated)
        return row  # type: ignore[no-any-return]


def made(value: Any, rows: dict[str, Any]) -> Any:
    """The object that a value of the file stands for.

    >>> made({"rule": "every", "n": 4, "key": "sliding_window_pattern"}, {}).keywords["n"]
    4
    """
    if isinstance(value, list):
        return tuple(made(each, rows) for each in value)
    if not isinstance(value, dict):
        return value
    # words of a config may be numbers, which are no keys of JSON
    inside: dict[Any, Any] = {
        int(key) if key.isdecimal() else key: each if key in AS_THEY_ARE else made(each, rows)
        for key, each in full(value, rows).items()
    }
    if "is" in inside:
        return CLASSES[inside.pop("is")](**inside)
    if "rule" in inside:
        rule = RULES[inside.pop("rule")]
        return partial(rule, **inside) if inside else rule
    return inside


def full(value: dict[str, Any], rows: dict[str, Any]) -> dict[str, Any]:
    """A dictionary without ``like``.

    >>> full({"like": "a", "x": 1}, {"a": {"is": "Names", "x": 0, "y": 2}})
    {'is': 'Names', 'x': 1, 'y': 2}
    """
    own = {key: each for key, each in value.items() if key != "like"}
    return {**full(rows[value["like"]], rows), **own} if "like" in value else own


def as_data(value: Any) -> Any:
    """Inverse of `made`, without ``like``.

    >>> as_data(Rope(10_000.0, top=()))
    {'is': 'Rope', 'base': 10000.0, 'top': []}
    """
    if is_dataclass(value) and not isinstance(value, type):
        own = {f.name: getattr(value, f.name) for f in fields(value) if _says_more(value, f)}
        return {"is": type(value).__name__, **as_data(own)}
    if isinstance(value, partial):
        return {"rule": value.func.__name__, **as_data(value.keywords)}
    if callable(value):
        return {"rule": value.__name__}
    if isinstance(value, dict):
        return {str(key): each if key in AS_THEY_ARE else as_data(each) for key, each in value.items()}
    return [as_data(each) for each in value] if isinstance(value, list | tuple) else value


def _says_more(value: Any, field: Any) -> bool:
    default = field.default if field.default_factory is MISSING else field.default_factory()
    return default is MISSING or getattr(value, field.name) != default


@cache
def stated() -> dict[str, Any]:
    """What the file says."""
    data: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return data


ROWS = RowTable(stated())
