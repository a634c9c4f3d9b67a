"""A config made small, by transformers' own class for it: all that bears on the rotation stays as it is."""

import inspect
import re
from pathlib import Path
from typing import Any, NamedTuple

from ...support.transformers_log import quiet
from .layers import Kept, by_number, kept_layers, layer_counts
from .model import TooLargeError, built_without_weights, one_line
from .names import HEADS, KEY_HEADS, MAIN_WIDTH, OF_OUTPUTS
from .sizes import Sizes, levels, models


class Tiny(NamedTuple):
    """A small config. ``changed``: path of a key -> its old and its new value; a key that one of both lacks is None.

    ``layers``: path of a key that counts layers -> for each layer of the real model, which layer of the small one is of
    its kind.
    """

    config: Any
    changed: dict[str, tuple[Any, Any]]
    layers: dict[str, tuple[int, ...]]


def tiny_config(data: dict[str, Any]) -> Tiny:
    """The config of a small model that rotates as the one of ``data``, the content of a ``config.json``.

    Layers of every kind stay, and at least two; the widths and numbers of heads are divided by one factor, so that the
    width of a head, stated or derived, stays. Vocabulary, experts and images become small. Where a model cannot be
    built so, what its code names stays as it was, then the widths, then the layers. Nothing is downloaded, and no code
    but that of the installed transformers is run. Raises ``ValueError`` if it has no class for ``data``, or builds no
    model of it.
    """
    with quiet():
        full = config_of(data)
        told = told_by(full)
        shrinking = Shrinking(told, source_of(full))
        while True:
            try:
                config, layers = shrinking.tried(type(full))
                break
            except Exception as error:
                if not shrinking.gentler(error):
                    raise ValueError(
                        f"no small model of type {full.model_type!r} is built: {one_line(error)}"
                    ) from error
        before, after = _flat(told), _flat(told_by(config))
    changed = {k: (before.get(k), after.get(k)) for k in before | after if before.get(k) != after.get(k)}
    return Tiny(config, changed, layers)


def config_of(data: dict[str, Any]) -> Any:
    """The config object of transformers for the content of a ``config.json``."""
    try:
        from transformers import CONFIG_MAPPING
    except ImportError as error:
        raise ValueError(f"transformers must be installed to build a model from its config: {error}") from error
    model_type = data.get("model_type")
    if not isinstance(model_type, str) or model_type not in CONFIG_MAPPING:
        raise ValueError(f"model_type must be one that the installed transformers knows, got {model_type!r}; update it")
    try:
        return CONFIG_MAPPING[model_type].from_dict(dict(data))
    except Exception as error:
        raise ValueError(f"transformers refuses this config of model type {model_type!r}: {one_line(error)}") from error


def told_by(config: Any) -> dict[str, Any]:
    """What a config says, with the numbers that its model is built by: Dory's writes each of its layers as two."""
    told = config.to_dict()
    for key, value in vars(config).items():
        if hasattr(value, "to_dict") and isinstance(told.get(key), dict):
            told[key] = told_by(value)
        elif key in told and isinstance(value, int | list):
            told[key] = value
    return told


def source_of(config: Any) -> str:
    """The text of the modeling files beside the file of a config's class."""
    folder = Path(inspect.getfile(type(config))).parent
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("modeling_*.py")))


class OtherHeadError(ValueError):
    """A head of the small model has another width than one of the real model."""

    def __init__(self, key: str, before: int, after: int) -> None:
        super().__init__(f"its class makes {key} {after}, and it must stay {before}")
        self.before = before


class Shrinking:
    """The way to a config small enough: what is not shrunk, because the model could not be built with less."""

    def __init__(self, told: dict[str, Any], source: str) -> None:
        self.told, self.source, self.sizes = told, source, Sizes(told)
        self.held: set[str] = set()
        self.narrow, self.shallow = True, True
        self.counted: dict[str, Kept] = {}

    def tried(self, cls: type) -> tuple[Any, dict[str, tuple[int, ...]]]:
        """The small config and its layers; raises what its class or its model says against it."""
        self.counted = {}
        config = cls(**self._level(self.told, 1, ""))
        built_without_weights(config)
        self._same_heads(config)
        return config, {path: kept.stands for path, kept in self.counted.items()}

    def gentler(self, error: Exception) -> bool:
        """Shrink less the next time; False if there is nothing less."""
        if isinstance(error, TooLargeError):
            return False
        if isinstance(error, OtherHeadError) and self.sizes.keep(error.before):
            return True
        named = {
            w for w in re.findall(r"\w+", str(error)) if any(w in level for level in levels(self.told))
        } - self.held
        if named:
            self.held |= named
            self.narrow &= not any(MAIN_WIDTH.search(name) or HEADS.search(name) for name in named)
            self.shallow &= not any("layer" in name for name in named)
        elif self.narrow:
            self.narrow = False
        elif self.shallow:
            self.shallow = False
        else:
            return False
        return True

    def _same_heads(self, config: Any) -> None:
        """Raise if a head has another width than the real one: where a class derives it, whatever is stated."""
        before, after = _flat(self.told), _flat(told_by(config))
        for key in before.keys() & after.keys():
            if key.endswith("head_dim") and None is not before[key] != after[key]:
                raise OtherHeadError(key, before[key], after[key])

    def _level(self, level: dict[str, Any], around: int, path: str) -> dict[str, Any]:
        level = {k: v for k, v in level.items() if isinstance(k, str) and not OF_OUTPUTS.search(k)}
        factor = self.sizes.factor(level, around) if self.narrow else 0
        own = {k: kept_layers(level, n, self.source) for k, n in layer_counts(level) if n and self.shallow}
        self.counted |= {f"{path}{key}": kept for key, kept in own.items()}
        return {k: self._value(k, v, level, list(own.values()), factor, path) for k, v in level.items()}

    def _value(self, key: str, value: Any, level: dict[str, Any], own: list[Kept], factor: int, path: str) -> Any:
        if isinstance(value, dict) and _is_level(key, value):
            return self._level(value, factor, f"{path}{key}.")
        if key in self.held:
            return value
        if value is None:
            return _derived(key, level, factor)
        if by_number(value):
            single = own[0].taken_by_number(value) if own else value
            return {i: self._level(v, factor, f"{path}{key}.{i}.") for i, v in single.items()}
        taken = next((t for kept in own if (t := kept.taken(key, value)) != value), value)
        if isinstance(taken, list) and any(len(taken) == len(kept.chosen) for kept in own):
            return [self.sizes.small(key, v, level, factor) for v in taken]
        return taken if taken != value else self.sizes.small(key, value, level, factor)


def _derived(key: str, level: dict[str, Any], factor: int) -> Any:
    """What a key means that is left open: heads share their width equally, and each has keys of its own."""
    width, heads = next(models(level), (0, [0]))
    if key == "head_dim" and heads[0]:
        return width // heads[0]
    return heads[0] // max(factor, 1) if KEY_HEADS.search(key) and heads[0] else None


def _is_level(key: str, value: dict[Any, Any]) -> bool:
    return "rope" not in key and bool(value) and all(isinstance(k, str) and not k.isdigit() for k in value)


def _flat(data: dict[str, Any], path: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict) and value:
            flat |= _flat(value, f"{path}{key}.")
        else:
            flat[f"{path}{key}"] = value
    return flat
