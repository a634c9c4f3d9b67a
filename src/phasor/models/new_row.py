"""Print the first version of a row for a new model type, as far as its config tells.

    python -m phasor.models.new_row path/to/config.json        (or: make new-model CONFIG=path/to/config.json)

docs/first_row.md takes it from there.
"""

import re
import sys
import textwrap
from dataclasses import fields
from typing import Any

from ..support.plain_text import say
from .families import ROWS
from .reading.composite import BASES, ROTATES, SHARES, account_for
from .reading.keys import about_positions, is_neutral
from .reading.layers import LATENT_KEYS, LISTED
from .reading.load import load
from .reading.text import TextModel
from .reading.text_row import ANY_NAMES, Names, Rope

DICTS = ("rope_parameters", "rope_scaling")
LENGTHS = re.compile(r"^(max|n)_.*(position|len|ctx)|^(seq|context|model_max)_?len")
UNKNOWN = {
    "interleaved=True": "if channels 2i and 2i+1 are a pair (x[..., ::2], complex numbers); the default is rotate_half",
    "rotates=...": "if some attention layers do not rotate; the rules are in phasor.models.reading.layers",
    "tables=...": "if cos and sin are not rounded to the dtype of q and k: 'float32' where these are cast up",
    "partial=1.0": "if the code reads a key that says how much of a head rotates, although this config has none",
    "defaults": "the numbers are those of this config; the config class may have others for keys that are left out",
    "weights=Weights(...)": "where the checkpoint keeps q and k, if not in layers.{}.self_attn.q_proj and k_proj",
}


def first_row(data: dict[str, Any]) -> dict[str, Any]:
    """Arguments of `TextModel` that a config tells.

    >>> first_row({"model_type": "toy", "hidden_size": 64, "num_attention_heads": 4, "rope_theta": 500.0})
    {'in_transformers': False, 'base': 500.0, 'hidden': 64, 'heads': 4}
    """
    row: dict[str, Any] = {"in_transformers": False, "base": None}
    ropes = [rope for name in DICTS if isinstance(rope := data.get(name), dict)]
    bases = {key: level[key] for level in (*ropes, data) for key in BASES if level.get(key) is not None}
    row["base"] = next(iter(bases.values()), 10_000.0)
    if bases and "rope_theta" not in bases:
        row["rope"] = Rope(row.pop("base"), top=tuple(bases))
    keys: dict[str, tuple[str, ...]] = {}
    for size in fields(Names):
        candidates = [*getattr(Names(), size.name), *getattr(ANY_NAMES, size.name)]
        candidates += [key for key in data if LENGTHS.search(key)] if size.name == "length" else []
        stated = [key for key in dict.fromkeys(candidates) if isinstance(data.get(key), int)]
        if stated:
            row[size.name] = data[stated[0]]
            keys[size.name] = (stated[0],)
    if names := {size: key for size, key in keys.items() if key != getattr(Names(), size)}:
        row["names"] = Names(**names)
    for key in SHARES:
        if isinstance(data.get(key), float):
            row |= {"partial": data[key], "shares": (key,)}
    if isinstance(data.get("rotary_dim"), int):
        row |= {"partial": 1.0, "widths": ("rotary_dim",)}
    if all(isinstance(data.get(key), int) for key in LATENT_KEYS):
        row["mla"] = tuple(data[key] for key in LATENT_KEYS)
    if data.get("layer_types"):
        row["layer_types"] = LISTED
    if reads := {key: "?" for key, value in data.items() if _unexplained(key, value, row)}:
        row["reads"] = reads
    return row


def _unexplained(key: str, value: Any, row: dict[str, Any]) -> bool:
    """Whether a key speaks of positions, asks for something, and no field of the row reads it."""
    read = (
        *BASES,
        *DICTS,
        *ROTATES,
        *row.get("shares", ()),
        *row.get("widths", ()),
        *LATENT_KEYS,
        "head_dim",
        "layer_types",
    )
    return about_positions(key) and key not in read and not is_neutral(value) and not isinstance(value, dict)


def main(path: str) -> int:
    """Print row, reading and open questions; exit code 1 if the row does not read its own config yet."""
    data = load(path)
    name = str(data.get("model_type"))
    if name in ROWS:
        say(f"{name!r} has a row: read_config reads it.")
        return 0
    row = first_row(data)
    call = f'"{name}": TextModel("{_class_name(data)}", {", ".join(f"{k}={_text(v)}" for k, v in row.items())}),'
    say(textwrap.fill(call, 119, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False) + "\n")
    try:
        model, keys = TextModel(_class_name(data), **row).read(name, data, "")
        account_for(model, name, keys, ())
        say(f"It reads this config as:\n{model}\n")
        code = 0
    except ValueError as error:
        say(f"It does not read this config yet: {error}\n")
        code = 1
    say("No config tells; look into the model's code:")
    questions = {f'reads={{"{key}": "?"}}': "what the code does with this key" for key in row.get("reads", ())}
    for field, question in {**questions, **UNKNOWN}.items():
        say(f"- {field}: {question}")
    return code


def _class_name(data: dict[str, Any]) -> str:
    """The config class, by its usual name."""
    auto = (data.get("auto_map") or {}).get("AutoConfig", "")
    return str(auto).rpartition(".")[2] or "".join(map(str.title, str(data.get("model_type")).split("_"))) + "Config"


def _text(value: Any) -> str:
    """A value as the row has it: of a dataclass only the fields that differ from their defaults."""
    if isinstance(value, Names | Rope):
        differ = [f for f in fields(value) if getattr(value, f.name) != f.default and getattr(value, f.name) != {}]
        return f"{type(value).__name__}({', '.join(f'{f.name}={_text(getattr(value, f.name))}' for f in differ)})"
    return "LISTED" if value is LISTED else repr(value).replace("'", '"')


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
