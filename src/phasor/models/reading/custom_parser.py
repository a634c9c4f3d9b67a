"""Rows whose config no table describes: a function reads it, with the few steps that such functions share."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ...rotary.spec import RotarySpec
from .grid import HARMLESS
from .keys import Keys, agreed, is_dict
from .model import ModelRotary
from .model_row import Inner, Row
from .part import Part
from .text import Text


@dataclass(frozen=True)
class Odd(Row):
    """The config class, the class that rotates (both of transformers 5.23), and the function that reads the config."""

    config: str
    code: str
    reader: Callable[[Part], ModelRotary]

    def read(self, name: str, data: dict[str, Any], path: str, above: dict[str, Any]) -> tuple[ModelRotary, Keys]:
        keys = Keys([(path, data)], {})
        return self.reader(Part(name, self.config, keys, path)), keys


@dataclass(frozen=True)
class Beside(Inner):
    """A part with sizes of its own in the config of another, read by the same kind of function."""

    row: Row

    def read_inside(self, name: str, data: dict[str, Any], path: str, outer: ModelRotary) -> tuple[ModelRotary, Keys]:
        return self.row.read(name, data, path, data)


@dataclass(frozen=True, kw_only=True)
class Line(Text):
    """A tower whose tokens stand in a line, with the keys of a text model under other names.

    - ``code``: the class that rotates; ``renamed``: keys of this config -> the name they have in text models;
      ``nested``: an object inside it that may hold them.
    - ``heads_that_turn``: only the first so many heads turn.
    """

    code: str
    tower: bool = True
    renamed: Mapping[str, str] = field(default_factory=dict)
    nested: str = ""
    heads_that_turn: int | None = None

    def read(self, name: str, data: dict[str, Any], path: str, above: dict[str, Any]) -> tuple[ModelRotary, Keys]:
        model, keys = super().read(name, self.canonical(data, path), path, above)
        for key, meaning in HARMLESS.items():
            keys.explain(meaning, key)
        return replace(model, heads=self.heads_that_turn), keys

    def canonical(self, data: dict[str, Any], path: str) -> dict[str, Any]:
        """The config under the names of text models; two spellings of one size must agree."""
        inner = data.get(self.nested) or {}
        is_dict(path + self.nested, inner)
        found = {key: [(path + key, value)] for key, value in data.items() if key not in (self.nested, *self.renamed)}
        for level, where in ((data, path), (inner, f"{path}{self.nested}.")):
            for key, name in self.renamed.items():
                if level.get(key) is not None:
                    found.setdefault(name, []).append((where + key, level[key]))
        return {name: agreed([pair for pair in pairs if pair[1] is not None]) for name, pairs in found.items()}


def of_one_spec(
    part: Part, spec: RotarySpec, words: tuple[str, ...], heads: int, *, kv_heads: int | None = None, **more: Any
) -> ModelRotary:
    """Layers that all turn by one spec, one for each word."""
    for key, meaning in HARMLESS.items():
        part.keys.explain(meaning, key)
    return ModelRotary(
        model_type=part.model_type, layers=(spec,) * len(words), layer_types=words, num_heads=heads,
        num_kv_heads=heads if kv_heads is None else kv_heads, part=part.path.rstrip("."), sources=part.keys.sources,
        **more,
    )  # fmt: skip
