"""Composite configs: which models are inside, what each of them is, and which one is the text model."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .keys import near
from .leftovers import SETTINGS
from .model_row import Chosen, PartOf, Row
from .non_rotary import Frame, Without

SHORT = ("text_config", "llm_config", "language_config")  # a text model whatever its config says of itself
TEXT_PARTS = (
    *SHORT, "thinker_config.text_config", "decoder", "thinker_config", "vlm_config.text_config", "global_config",
    "decoder_config",
)  # fmt: skip
MODELS = ("encoder", "decoder", "atom_encoder")  # keys of models that do not end in _config
NOT_TEXT = ("vision", "visual", "audio", "image")
ENDINGS = ("_vision", "_vision_encoder", "_vision_model", "_vit_model", "_audio", "_audio_encoder", "_encoder")
SIZES = ("hidden_size", "num_hidden_layers", "num_attention_heads")
SIZE_WORDS = re.compile(r"hidden_(size|layers)|(^|_)depth$|^num_layers$|^embed_dim$|^d_model$|^n_layers?$")
MOST_PARTS = 64
Rows = Mapping[str, Row | Chosen]


class Composite:
    """A config with the models inside it, as far as the rows know them.

    ``parts``: dotted path -> config of every model inside; ``inner``: dotted path -> path of the config that describes
    it, for parts that have no config of their own.
    """

    def __init__(self, data: dict[str, Any], rows: Rows) -> None:
        self.data, self.rows = data, rows
        self.parts = dict(_parts(data, self._is_named))
        if len(self.parts) > MOST_PARTS:
            raise ValueError(f"config holds {len(self.parts)} models; a composite config has at most {MOST_PARTS}")
        self.inner: dict[str, str] = {}
        for path in ("", *self.parts):
            if self.is_readable(path) and not self.held_by_frame(path):
                row = self.row(path)
                for name, one in row.inner.items() if row is not None else ():
                    if one.stands_in(self.config(path)):
                        self.inner[f"{path}.{name}".lstrip(".")] = path

    def _is_named(self, key: str) -> bool:
        """Whether some row knows a part under this key."""
        return any(isinstance(row, Row) and key in row.parts for row in self.rows.values())

    @property
    def paths(self) -> tuple[str, ...]:
        return (*self.parts, *self.inner)

    def config(self, path: str) -> dict[str, Any]:
        return self.parts[path] if path else self.data

    def above(self, path: str) -> dict[str, Any]:
        """The config of the part around a part."""
        while path:
            path = path.rpartition(".")[0]
            if not path or path in self.parts:
                return self.config(path)
        return {}

    def repeating(self, path: str) -> list[dict[str, Any]]:
        """The configs around a part whose keys about positions can only repeat what the part says."""
        steps = path.split(".") if path else []
        above = [".".join(steps[:i]) for i in range(len(steps))]
        return [self.config(each) for each in above if (not each or each in self.parts) and self.repeats(each)]

    def row(self, path: str) -> Row | None:
        found = self.rows.get(self.name(path))
        assert not isinstance(found, Chosen)
        return found

    def name(self, path: str) -> str:
        """The row of a part: its model_type, else its architecture, else what its parent makes of it."""
        data, key = self.config(path), path.rpartition(".")[2]
        if (tower := self._tower(path)) is not None:
            return tower
        stated = self.stated_name(data)
        if self.is_tower_key(path):
            return stated
        if stated:
            return self._text_name(stated, data)
        if (part := self.part_of(path)) is not None:
            return part.row
        if key in SHORT[:2]:
            return f"{self.stated_name(self.above(path))}_text"
        return key if isinstance(self.rows.get(key), Without) else ""

    def part_of(self, path: str) -> PartOf | None:
        """What a config around this part says of it."""
        around, _, key = path.rpartition(".")
        while path:
            path = around
            row = self.rows.get(str(self.config(path).get("model_type"))) if path in self.parts or not path else None
            if isinstance(row, Row) and key in row.parts:
                return row.parts[key]
            around = path.rpartition(".")[0]
        return None

    def stated_name(self, data: dict[str, Any]) -> str:
        """What a config calls itself."""
        for value in (data.get("model_type"), data.get("model")):
            if isinstance(value, str) and not value.isprintable():
                raise ValueError(f"model_type must be a plain word, got {value!r}")
            if isinstance(value, str) and value:
                return value
        architectures = data.get("architectures")
        for name in architectures if isinstance(architectures, list) else ():
            if isinstance(name, str) and name in self.rows:
                return name
        return ""

    def _text_name(self, name: str, data: dict[str, Any]) -> str:
        row = self.rows.get(name)
        if isinstance(row, Chosen):
            return row.by(data)
        flat = row is None or isinstance(row, Frame)  # a composite model whose text keys stand at the top
        return f"{name}_text" if flat and f"{name}_text" in self.rows else name

    def _tower(self, path: str) -> str | None:
        """The row of a vision, audio or other tower; None if the part is none of those that are known.

        A config that calls itself by its model, or by nothing, is told by the key it stands under.
        """
        data, key = self.config(path), path.rpartition(".")[2]
        stated = data.get("model_type")
        if isinstance(stated, str) and self._is_tower(stated):
            return stated
        if not stated and (part := self.part_of(path)) is not None and self._is_tower(part.row):
            return part.row
        above = stated or self.above(path).get("model_type")
        kinds = [word for word in ("vision", "audio", "encoder") if word in key]
        for ending in ENDINGS:
            name = f"{above}{ending}"
            if isinstance(above, str) and any(word in ending for word in kinds) and name in self.rows:
                return name
        return None

    def _is_text(self, name: str) -> bool:
        row = self.rows.get(name)
        return isinstance(row, Chosen) or (row is not None and row.text and not getattr(row, "tower", False))

    def _is_tower(self, name: str) -> bool:
        row = self.rows.get(name)
        return isinstance(row, Row) and not isinstance(row, Frame) and not self._is_text(name)

    def is_readable(self, path: str) -> bool:
        """Whether the part is of a family that rotates."""
        try:
            row = self.row(path)
        except ValueError:
            return False
        return row is not None and row.readable

    def has_own(self, path: str) -> bool:
        """Whether a config is by its own name one that has something to say, whatever parts it holds."""
        row = self.rows.get(str(self.config(path).get("model_type"))) if path in self.parts or not path else None
        return isinstance(row, Row) and not row.frame

    def repeats(self, path: str) -> bool:
        """Whether keys about positions beside the parts of a config can only repeat what the parts say."""
        row = self.rows.get(str(self.config(path).get("model_type"))) if path in self.parts or not path else None
        return not self.has_own(path) and not (isinstance(row, Frame) and row.deaf)

    def is_tower_key(self, path: str) -> bool:
        """Whether a part stands under a key of vision or sound."""
        return any(word in path.rpartition(".")[2] for word in NOT_TEXT)

    def held_by_frame(self, path: str) -> list[str]:
        """The parts inside a config that says nothing of its own; empty for any other."""
        if self.has_own(path):
            return []
        data = self.config(path)
        inside = [p for p in self.parts if not path or p.startswith(f"{path}.")]
        sized = not any(f"{path}.{key}".lstrip(".") in self.parts for key in SHORT)
        sized = sized and any(name in data for name in SIZES)
        return [] if sized and self.is_readable(path) else inside

    def choose(self, part: str | None) -> str:
        """The path of the part to read; ``""`` for the config itself."""
        if part is None:
            return self._text_part()
        if not self.paths and part != "":
            raise ValueError(f"part must be left out, because this config has no parts, got {part!r}")
        if not isinstance(part, str) or (part and part not in self.paths):
            raise ValueError(f"part must be one of {sorted(self.paths)}, got {part!r}{near(str(part), self.paths)}")
        return part

    def _text_part(self) -> str:
        """The text model; without one the config itself, or the first part that can be read."""
        readable = [p for p in self.parts if self.is_readable(p) and not self.held_by_frame(p)]
        texts = [path for path in TEXT_PARTS if path in self.parts]
        for path in (*(p for p in texts if p in readable), *texts):
            return path
        if self.is_readable("") or not readable:
            return ""
        return ([p for p in readable if self._is_text(self.name(p))] or readable)[0]

    def others_that_rotate(self, path: str) -> str:
        """For an error: what else could be read."""
        others = [p for p in ("", *self.parts) if p != path and self.is_readable(p) and not self.held_by_frame(p)]
        return f"; other parts may rotate: part={', part='.join(map(repr, others))}" if others else ""


def _parts(
    config: dict[str, Any], is_named: Callable[[str], bool], prefix: str = "", depth: int = 0
) -> Iterator[tuple[str, dict[str, Any]]]:
    """``(dotted path, config)`` of every model inside a composite config; ``is_named``: whether a row knows a key."""
    for key, value in config.items():
        if not isinstance(key, str) or not key.isprintable() or key in SETTINGS or depth > 8:
            continue
        if (prefix + key in TEXT_PARTS[:6] or key == SHORT[0]) and not isinstance(value, dict | None):
            raise ValueError(
                f"{prefix}{key} must be an object of keys, the config of the text model, got {value!r:.80}"
            )
        if not isinstance(value, dict):
            continue
        inside = list(_parts(value, is_named, f"{prefix}{key}.", depth + 1))
        if (key.endswith("_config") or key in MODELS) and (inside or is_named(key) or _is_model(key, value)):
            yield prefix + key, value
        yield from inside


def _is_model(key: str, value: dict[str, Any]) -> bool:
    named = key in SHORT or (key not in MODELS and any(word in key for word in NOT_TEXT))
    return named or bool(value.get("model_type")) or any(SIZE_WORDS.search(str(name)) for name in value)
