"""Towers that no line of a table describes: what such an entry is, and the few steps they share."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ...spec import RotarySpec
from ..model import ModelRotary
from .part import Part


@dataclass(frozen=True)
class Single:
    """The config class, the class that rotates (both of transformers 5.23), and the function that reads the config."""

    config: str
    code: str
    read: Callable[[Part], ModelRotary]


def alike(
    part: Part, spec: RotarySpec, words: tuple[str, ...], heads: int, *, kv_heads: int | None = None, **more: Any
) -> ModelRotary:
    """Layers of one spec, one for each word."""
    part.harmless()
    return ModelRotary(
        model_type=part.model_type, layers=(spec,) * len(words), layer_types=words, num_heads=heads,
        num_kv_heads=heads if kv_heads is None else kv_heads, part=part.path.rstrip("."), sources=part.keys.sources,
        **more,
    )  # fmt: skip
