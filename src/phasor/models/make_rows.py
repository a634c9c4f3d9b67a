"""Compare `rows.json` with the models of the transformers that is installed, and write the rows of new types.

    python -m phasor.models.make_rows [--write] [TYPE ...]        (or: make rows ARGS="--write")

Each type is built small from its default config, and from one with another value for every key about positions that its
code reads, and observed (`evidence`). A type without a row gets one, if the row that is written reads what is observed;
it starts from what the config class says of itself. What a row has beside is written by hand: a rule, a note, weights.
"""

import argparse
import importlib
import json
import logging
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..support.plain_text import say
from ..support.whole_files import write_whole
from .evidence.collect import collect
from .evidence.new_row import NotUnderstood, new_row
from .evidence.verdict import Tally, argued
from .reading.row import Row
from .rows import FILE, ROWS, stated

SIZES = {
    "hidden": "hidden_size", "heads": "num_attention_heads", "kv_heads": "num_key_value_heads",
    "layers": "num_hidden_layers", "head_dim": "head_dim", "length": "max_position_embeddings",
}  # fmt: skip


@cache
def config_classes() -> dict[str, Any]:
    """Model type -> config class of transformers, also of types that are only parts of others."""
    classes: dict[str, Any] = {}
    mapping = importlib.import_module("transformers").CONFIG_MAPPING
    todo = [(name, mapping[name]) for name in mapping]
    while todo:
        name, cls = todo.pop(0)
        if name and name not in classes:
            classes[name] = cls
            todo += [(part.model_type, part) for part in cls.sub_configs.values() if getattr(part, "model_type", "")]
    return classes


def of_config_class(cls: Any) -> dict[str, Any]:
    """Class, sizes, their keys, rope parameters, layer types and parts, as far as the config class has defaults."""
    seen: dict[str, Any] = {"config": cls.__name__}
    renamed = {size: cls.attribute_map.get(key, key) for size, key in SIZES.items()}
    seen |= {size: value for size, key in renamed.items() if isinstance(value := getattr(cls, key, None), int)}
    if parts := {key: part.model_type for key, part in cls.sub_configs.items() if getattr(part, "model_type", "")}:
        seen["parts"] = parts
    seen["names"] = {size: key for size, key in renamed.items() if hasattr(cls, key)}
    try:
        default = cls()
    except Exception as error:  # some classes refuse their own defaults, each in its way
        return {**seen, "not understood": f"its default config: {error}"}
    if isinstance(rope := getattr(default, "rope_parameters", None), Mapping):
        seen |= of_rope_parameters(rope)
    if words := getattr(default, "layer_types", None):
        seen["layer_types"] = list(words)
    return seen


def of_rope_parameters(rope: Mapping[str, Any]) -> dict[str, Any]:
    """``base``, ``partial`` and what else the parameters say; ``rope`` by kind of layer, where they do.

    >>> of_rope_parameters({"rope_theta": 10.0, "rope_type": "default", "partial_rotary_factor": 0.5})
    {'base': 10.0, 'more': {'partial_rotary_factor': 0.5}}
    """
    if any(isinstance(value, Mapping) for value in rope.values()):  # or null: these layers do not rotate
        return {"rope": {kind: one and of_rope_parameters(one) for kind, one in rope.items()}}
    more = {
        key: value for key, value in rope.items() if key != "rope_theta" and (key, value) != ("rope_type", "default")
    }
    return {key: value for key, value in (("base", rope.get("rope_theta")), ("more", more)) if value}


def as_text(rows: dict[str, Any]) -> str:
    """The file: a line for what is plain in a row, and one for each of its other fields."""
    lines = []
    for name, row in sorted(rows.items()):
        said = {key: f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in row.items()}
        plain = ", ".join(text for key, text in said.items() if not isinstance(row[key], list | dict))
        more = [text for key, text in said.items() if isinstance(row[key], list | dict)]
        lines.append(f"  {json.dumps(name)}: {{" + ",\n    ".join([plain, *more]) + "}")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main(arguments: list[str] | None = None) -> int:
    """Print what differs; exit code 1 if anything does."""
    parser = argparse.ArgumentParser(prog="make_rows", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("types", nargs="*", help="model types; all, if left out")
    parser.add_argument("--write", action="store_true", help="put new rows into rows.json")
    parser.add_argument("--kept", type=Path, help="a file of what was observed, to go on after an interruption")
    parser.add_argument("--processes", type=int, default=2, help="how many models are observed at a time")
    options = parser.parse_args(arguments)
    rows = dict(stated())
    names = options.types or list(config_classes())
    logging.getLogger("transformers").setLevel(logging.CRITICAL)  # after its import, which sets it
    count = {"new": 0, "changed": 0, "not understood": 0}
    write_new(new_types(names, rows), rows, count)
    observe_all(observable(names), options.processes, options.kept, count)
    if options.write:
        write_whole(FILE, as_text(rows).encode())
    say(", ".join(f"{number} {what}" for what, number in count.items()))
    return int(any(count.values()))


def new_types(names: list[str], rows: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What the config classes of types without a row say of themselves, as far as they have rope parameters."""
    known, new = {row.get("config") for row in rows.values()}, {}
    for name in names:
        if name in rows or not hasattr(config_classes()[name], "rope_parameters"):
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seen = of_config_class(config_classes()[name])
        if seen["config"] not in known:
            new[name] = seen
    return new


def write_new(new: Mapping[str, dict[str, Any]], rows: dict[str, Any], count: dict[str, int]) -> None:
    """The rows of types that have none; one that cannot be written is told, and its configs stay observed."""
    for name, fields in new.items():
        count["new"] += 1
        say(f"new: {name}: {fields}")
        try:
            rows[name], outcomes = new_row(name, fields)
            say(f"written: {name}: its row reads what is observed, with {len(outcomes)} configs")
        except (NotUnderstood, ValueError) as reason:
            count["not understood"] += 1
            say(f"not understood: {name}: {reason}")


def observable(names: list[str]) -> list[str]:
    """The types with a row that reads a rotation from their own configs, and with a class to build."""
    with_class = importlib.import_module("transformers").CONFIG_MAPPING
    rows = {name: ROWS[name] for name in names if name in ROWS and name in with_class}
    return [name for name, row in rows.items() if isinstance(row, Row) and row.readable and not row.composite]


def observe_all(names: list[str], processes: int, kept: Path | None, count: dict[str, int]) -> None:
    """Tell of each type in how many configs its row reads what is observed, and in which it does not."""
    tally = Tally()
    for done, (name, outcomes) in enumerate(collect(names, True, processes, kept), 1):
        tally.add(outcomes)
        equal = sum(one.kind == "equal" for one in outcomes)
        say(f"{done}/{len(names)} {name}: {equal} of {len(outcomes)} equal")
        for one in outcomes:
            if one.kind in ("differs", "not read", "not seen") and not argued(one):
                count["changed"] += 1
                where = one.change or "its default config"
                say("\n".join(f"{one.kind}: {name}, {where}: {what}: {why}" for what, why in one.why.items()))
    say(str(tally))


if __name__ == "__main__":
    raise SystemExit(main())
