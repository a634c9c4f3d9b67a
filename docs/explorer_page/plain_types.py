"""The model types whose configs the page reads by itself: those whose rows say sizes and defaults, and nothing else."""

import dataclasses
from typing import Any

from phasor import RotarySpec, read_config
from phasor.models.published_lengths import PUBLISHED
from phasor.models.reading.composite import CLAIMS, OTHER_NAMES, SETTINGS
from phasor.models.reading.keys import COMMON, LAYER_NAMES, OTHER_POSITIONS, ROPE_NAMES, ROPE_WORDS
from phasor.models.reading.layers import LARGEST_HEAD, pattern
from phasor.models.reading.sizes import LARGEST_COUNT, LARGEST_HIDDEN
from phasor.models.reading.text import TextModel
from phasor.models.reading.text_row import ANY_NAMES, Rope
from phasor.models.rows import ROWS

# Fields of a row that the page copies, and those that say nothing of the rotation of a config without further keys.
COPIED = ("config", "base", "hidden", "heads", "kv_heads", "layers", "head_dim", "length", "partial", "interleaved")
SILENT = {
    "rope", "tables", "weights", "published", "gguf", "in_transformers", "known_deviations", "notes", "axes",
    "scheme_names", "positions", "reads", "layer_types",
}  # fmt: skip
# Keys by which a cache keeps something else than the keys and values of all heads in all layers.
OF_MEMORY = (
    "attention_k_eq_v", "block_configs", "kv_lora_rank", "num_kv_shared_layers", "swa_num_key_value_heads",
    "swa_v_head_dim", "v_head_dim",
)  # fmt: skip
_PLAIN = TextModel("PlainConfig", base=10_000.0)


def plain_types() -> dict[str, dict[str, Any]]:
    """Model type -> its defaults, for types whose code does what the keys of a config say and nothing besides.

    A row is plain if all fields that could change the rotation are unset, and if its own default config is read as one
    rotation of one axis in all layers, without windows. Whether the page reads the configs of these types as phasor
    does is what its tests compare.

    >>> plain_types()["llama"]["base"], "deepseek_v3" in plain_types()
    (10000.0, False)
    """
    rows = {name: row for name, row in sorted(ROWS.items()) if type(row) is TextModel}
    return {name: _defaults(row) for name, row in rows.items() if _is_plain(name, row)}


def _is_plain(name: str, row: TextModel) -> bool:
    for field in dataclasses.fields(row):
        if field.name in (*COPIED, *SILENT):
            continue
        if getattr(row, field.name) != getattr(_PLAIN, field.name):
            return False
    rope = row.rope or Rope(row.base)
    if callable(row.kv_heads) or callable(row.head_dim) or rope != Rope(rope.base if isinstance(rope, Rope) else None):
        return False
    layers = row.layer_types
    if layers.usual is not pattern or layers.last or layers.two_sided or layers.listed.keys() - {"layer_types"}:
        return False
    return _reads_plainly(name, row)


def _reads_plainly(name: str, row: TextModel) -> bool:
    """Whether a config that says nothing is one rotation of one axis, everywhere."""
    try:
        model = read_config({"model_type": name})
    except ValueError:
        return False
    width = model.layers[0].head_dim if model.layers[0] is not None else 0
    share = 1.0 if row.partial is None else row.partial
    base = row.rope.base if isinstance(row.rope, Rope) else row.base
    if base is None or not width:
        return False
    plain = RotarySpec(head_dim=width, rotary_dim=int(width * share), base=base, interleaved=row.interleaved)
    asked = {spec and spec.replace(tables=plain.tables) for spec in set(model.layers)}
    others = (*model.windows, *model.temperatures, model.heads, model.prefix_tokens, model.suffix_tokens)
    same = asked == {plain} and model.targets == ("q", "k") and model.softmax_factor == 1 and not any(others)
    return same and not set(model.layer_types) - {"attention", "full_attention"}


def _defaults(row: TextModel) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in COPIED}
    values["base"] = row.rope.base if isinstance(row.rope, Rope) else row.base
    return {
        **values,
        "notes": list(row.notes),
        "unread": sorted(key for key in row.reads if "." not in key),
        "own_schemes": sorted(row.scheme_names),
    }


def reading_rules() -> dict[str, Any]:
    """What the page needs in order to read a config, and to notice a key that it does not understand.

    >>> reading_rules()["positions"].startswith("(?<!p)rope")
    True
    """
    return {
        "types": plain_types(),
        "published": [
            {"types": list(one.types), "declared": one.declared, "base": one.base, "tokens": one.tokens}
            for one in PUBLISHED
        ],
        "positions": ROPE_WORDS.pattern,
        "layer_names": sorted(LAYER_NAMES),
        "rope_names": list(ROPE_NAMES),
        "common": list(COMMON),
        "other_positions": sorted(OTHER_POSITIONS),
        "other_names": sorted(OTHER_NAMES),
        "synonyms": {name: list(names) for name, names in vars(ANY_NAMES).items()},
        "settings": list(SETTINGS),
        "claims": list(CLAIMS),
        "memory": list(OF_MEMORY),
        "largest": {"heads": LARGEST_COUNT, "layers": LARGEST_COUNT, "head": LARGEST_HEAD, "hidden": LARGEST_HIDDEN},
    }
