"""Keys that nobody asked for: without effect if their value says nothing or what is so anyway, refused otherwise."""

from typing import Any

from .keys import ROPE_WORDS, Keys, about_positions, is_neutral, is_slip, near
from .model import ModelRotary

SETTINGS = (
    "quantization_config", "compression_config", "generation_config", "auto_map", "task_specific_params",
    "per_layer_config", "slice_config",
)  # fmt: skip
HEAD_DIMS = ("head_dim", "kv_channels", "attention_head_dim", "qk_head_dim", "global_head_dim")
BASES, WIDTHS, SHARES = (
    ("rope_theta", "rotary_emb_base", "rope_base"),
    ("rotary_dim",),
    ("partial_rotary_factor", "rotary_pct"),
)
KINDS = ("rope", "rotary", "absolute")  # the last is what BERT's configs say where nobody asks
ROTATES = ("use_rope", "rope", "use_rotary_pos_emb", "rotary", "use_rotary_embedding", "use_pos_enc")


def account_for(model: ModelRotary, name: str, keys: Keys, models: list[int]) -> None:
    """Every key about positions, in the config and in its settings, was read, or has no effect; else it is refused.

    ``models``: ids of the dictionaries that are parts of their own.
    """
    known = sorted(keys.used)
    for place, key in keys.unused():
        value = next(data[key] for path, data in keys.places if path == place and key in data)
        if isinstance(value, dict) and key not in SETTINGS and id(value) not in models:
            refuse_inside(f"{place}{key}.", value, models)
        if not about_positions(key) or id(value) in models:
            continue
        claim = _claim(key, value, model)
        if claim:
            keys.sources[place + key] = f"no effect: the code of {name} does not read it, and does that anyway"
        elif claim is False or not is_neutral(value) or (value and is_slip(key)):
            hint = near(key, known) if is_slip(key) else ""
            raise ValueError(
                f"{place}{key} is {value!r:.80}, but the code of {name} does not read it{hint}; remove the "
                "key if it has no effect, or describe the encoding with RotarySpec yourself"
            )
        else:
            keys.sources[place + key] = f"no effect: the code of {name} does not read it"


def _claim(key: str, value: Any, model: ModelRotary) -> bool | None:
    """Whether what a key claims of the model is so; None: it claims nothing that can be told."""
    specs = list(model.distinct)
    if key in ROTATES and isinstance(value, bool):
        return value
    if key == "position_embedding_type" and value in KINDS:
        return True
    if key == "layer_types" and isinstance(value, list):
        return all(word in ("full_attention", "attention") for word in value) or None
    for names, found in (
        (BASES, {spec.base for spec in specs}),
        (HEAD_DIMS, {spec.head_dim for spec in specs}),
        (WIDTHS, {spec.rotary_dim for spec in specs}),
        (SHARES, {spec.rotary_dim / spec.head_dim for spec in specs}),
        (("rope_interleave", "rotary_interleaved", "rope_interleaved"), {spec.interleaved for spec in specs}),
        (("rope_is_neox_style", "is_neox_style"), {not spec.interleaved for spec in specs}),
    ):
        if key in names and isinstance(value, int | float):
            return found == {value}
    return None


def refuse_inside(path: str, data: dict[str, Any], models: list[int]) -> None:
    """Raise ``ValueError`` for a key about positions anywhere inside a dictionary that is no model of its own."""
    for key, value in data.items():
        if is_neutral(value) or id(value) in models:
            continue
        if isinstance(key, str) and ROPE_WORDS.search(key) and about_positions(key):
            name = key if key.isprintable() else repr(key)
            raise ValueError(
                f"{path}{name} is not understood, got {value!r:.80}; remove it if it has no effect on positions"
            )
        if isinstance(value, dict):
            refuse_inside(f"{path}{key}.", value, models)
