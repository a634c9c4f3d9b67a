"""What engines' code does with single model types otherwise than by default: the tables of ``models.json``."""

import json
from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

Fact = TypeVar("Fact")


@cache
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    text = (files(__package__) / "models.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def facts(engine: str, make: Callable[..., Fact]) -> dict[str, Fact]:
    """Model type -> what the engine's code does with it, each made by ``make`` from its fields."""
    tables = _tables()[engine].items()
    return {
        name: make(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}) for name, fields in tables
    }
