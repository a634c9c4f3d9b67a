"""A model type that is not known: read by its keys alone, if they say everything that a family's line would say."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from .family import Family
from .fields import BASES, SHARES
from .hf import read_text_config
from .keys import Keys, agreed, near
from .model import ModelRotary
from .sizes import HEADS, LAYERS

LAYOUT = ("rope_is_neox_style", "rope_interleave")
WANTED = {
    "the pair layout": LAYOUT,
    "the width of a head": ("head_dim",),
    "how much of it turns": (SHARES[0], "rotary_dim"),
    "the base": BASES,
    "the number of heads": HEADS,
    "the number of layers": LAYERS,
}
NOTE = "its model type is not known: it was read by its keys alone, as a model that rounds cos and sin to its own dtype"


def read_by_keys(name: str, data: dict[str, Any], path: str, known: Iterable[str]) -> tuple[ModelRotary, Keys]:
    """What the keys of a text model describe, and the keys for the final check.

    Raises ``ValueError`` that lists what they leave open.
    """
    inside = [v for key in ("rope_parameters", "rope_scaling") if isinstance(v := data.get(key), dict)]
    stated = {key for level in (data, *inside) for key, value in level.items() if value is not None}
    missing = [f"{what} ({' or '.join(names)})" for what, names in WANTED.items() if not stated.intersection(names)]
    kinds = data.get("layer_types")
    if isinstance(kinds, list | tuple) and any(kind != kinds[0] for kind in kinds):
        missing.append("which of its kinds of layers turn, and how (no key can)")
    if missing:
        raise ValueError(
            f"model_type{f' of {path}' if path else ''} {name!r} is not known: pair layout and defaults cannot be "
            f"guessed{near(name, known)}; to be read by its keys alone, it lacks {', '.join(missing)}; "
            "add what is missing, or describe the encoding with RotarySpec yourself"
        )
    prefix = f"{path}." if path else ""
    keys = Keys([(prefix, data)], {})
    said = {key: flag for key in LAYOUT if (flag := keys.flag(key)) is not None}
    interleaved = agreed([(prefix + key, flag == (key == "rope_interleave")) for key, flag in said.items()])
    family = Family(name, 10_000.0, (None,) * 6, partial=1.0, interleaved=interleaved)
    rest = {key: value for key, value in data.items() if key not in LAYOUT}
    model, left = read_text_config(name, family, rest, prefix)
    sources = dict.fromkeys((prefix + key for key in said), "interleaved pairs" if interleaved else "halves")
    return replace(model, notes=(*model.notes, NOTE), sources={**model.sources, **sources}), left
