"""Every model type of the installed transformers that rotates, with the paths of the configs that do."""

import contextlib
import importlib
import logging
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from evidence.experiment import arguments

from .source import Name, rotating

# Default configs that its own class refuses, that describe no model that runs, or that leave the rotation off: with
# the arguments that mend it.
ARGUMENTS = arguments()
NOT_BUILT = {"nougat": "its default names a type that does not exist (donut_swin); Swin and MBart do not rotate"}

# Classes that hold the code of a rotation and are never given one.
NEVER_ROTATE = {
    "ClvpDecoderConfig": "its layers take rotary_pos_emb=None always; only the encoder passes one",
    "Gemma4UnifiedVisionConfig": "only named in a type hint of the text attention; its embedder has no attention",
    "MoshiDepthConfig": "its layers are built with use_rope=False",
}


class Place(NamedTuple):
    """One config inside a model's config: where it stands, and whose it is."""

    path: str
    config: Any

    @property
    def name(self) -> str:
        return type(self.config).__name__


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """transformers' loggers and Python's warnings off: default configs warn about tokens nobody asked for."""
    logger = logging.getLogger("transformers")
    before = logger.level
    if before == logging.CRITICAL:  # inside another of these, which has done it all
        yield
        return
    logger.setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def places(config: Any, path: str = "") -> Iterator[Place]:
    """A config and all configs inside it, also those that it derives when asked (`mimi.encoder_config`).

    A class of its own that a config has derived from another's has that one's property, and derives itself again
    (WavTokenizer's encoder): it is taken once.
    """
    if config is None:
        return
    yield Place(path, config)
    mro = [c for c in type(config).__mro__ if not (path and c is not type(config) and "model_type" in vars(c))]
    derived = [n for c in mro for n, v in vars(c).items() if isinstance(v, property) and "config" in n]
    inside = {**{n: getattr(config, n) for n in derived}, **vars(config)}
    for key, value in inside.items():
        if callable(getattr(value, "to_dict", None)) and hasattr(value, "model_type") and not key.startswith("_"):
            yield from places(value, f"{path}.{key}".lstrip("."))


def rotates(config: Any) -> bool:
    """Whether a model of this very config rotates, its sub-configs left out."""
    return type(config).__name__ in rotating_configs() and type(config).__name__ not in NEVER_ROTATE


@cache
def rotating_configs() -> frozenset[str]:
    """Config classes of models that rotate, also of those that run as another folder's model (internlm3 as Llama)."""
    return frozenset(rotating()) | frozenset(borrowed())


@cache
def borrowed() -> dict[str, tuple[Name, ...]]:
    """Config class -> the model of another folder that transformers runs for it."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    types = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES
    classes = {name[2]: name for names in rotating().values() for name in names}
    found = {types[t]: model for t, model in auto.MODEL_MAPPING_NAMES.items() if t in types}
    return {c: (classes[m],) for c, m in found.items() if c not in rotating() and m in classes}


@cache
def default_config(model_type: str) -> Any:
    mapping = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING
    with quiet():
        plain = mapping[model_type] if model_type in ARGUMENTS else mapping[model_type]()
        return plain(**ARGUMENTS[model_type]) if model_type in ARGUMENTS else _mended(plain)


def _mended(config: Any) -> Any:
    """A composite config whose parts get the arguments that they need."""
    changed = {}
    for place in places(config):
        named = place.config.model_type and place.path and "." not in place.path
        if named and any(p.config.model_type in ARGUMENTS for p in places(place.config)):
            changed[place.path] = default_config(place.config.model_type).to_dict()
    return type(config)(**changed) if changed else config


@cache
def turning_places(name: str) -> tuple[Place, ...]:
    """The configs that rotate in the default config of a model type."""
    with quiet():
        config = None if name in NOT_BUILT else default_config(name)
        return tuple(place for place in places(config) if rotates(place.config))


@cache
def model_types() -> dict[str, tuple[Place, ...]]:
    """Every model type with a rotation in its default config, its own or a part's -> the configs that rotate."""
    names = importlib.import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES
    return {name: turning for name in names if (turning := turning_places(name))}
