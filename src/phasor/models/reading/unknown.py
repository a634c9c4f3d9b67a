"""A model type that is not known: read by its keys alone, if they say everything that a row would say."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ...rotary.model_rotary import ModelRotary
from .axes import one_axis
from .keys import Keys, agreed, near
from .layers import Layers
from .refusal import Reason, Refused
from .text import TextModel, read_text
from .text_row import ANY_NAMES, Rope

BASES = ("rope_theta", "rotary_emb_base")
LAYOUT = ("rope_is_neox_style", "rope_interleave")
WANTED = {
    "the pair layout": LAYOUT,
    "the width of a head": ANY_NAMES.head_dim,
    "how much of it rotates": ("partial_rotary_factor", "rotary_dim"),
    "the base": BASES,
    "the number of heads": ANY_NAMES.heads,
    "the number of layers": ANY_NAMES.layers,
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
        missing.append("which of its kinds of layers rotate, and how (no key can)")
    if missing:
        raise Refused(
            f"model_type{f' of {path}' if path else ''} {name!r} is not known: pair layout and defaults cannot be "
            f"guessed{near(name, known)}; to be read by its keys alone, it lacks {', '.join(missing)}; "
            "add what is missing, or describe the encoding with RotarySpec yourself",
            Reason.AMBIGUOUS,
            f"{path}.model_type".lstrip("."),
        )
    prefix = f"{path}." if path else ""
    row = row_by_keys(name, data, prefix)
    rest = {key: value for key, value in data.items() if key not in LAYOUT}
    model, left = read_text(name, row, rest, prefix)
    paths = [prefix + key for key in LAYOUT if data.get(key) is not None]
    left.sources |= dict.fromkeys(paths, "interleaved pairs" if row.interleaved else "halves")
    return replace(model, notes=(NOTE, *model.notes)), left


def row_by_keys(name: str, data: dict[str, Any], prefix: str = "") -> TextModel:
    """The row that the keys of a text model say."""
    keys = Keys([(prefix, data)], {})
    flags = {key: flag for key in LAYOUT if (flag := keys.flag(key)) is not None}
    interleaved = agreed([(prefix + key, flag == (key == "rope_interleave")) for key, flag in flags.items()])
    return TextModel(
        config=name, rope=Rope(10_000.0, top=BASES), names=ANY_NAMES, widths=("rotary_dim",), partial=1.0,
        interleaved=interleaved, layer_types=Layers(listed={"layer_types": None}), axes=one_axis,
    )  # fmt: skip
