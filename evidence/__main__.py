"""Compare `rows.json` with the models of the transformers that is installed.

    python -m evidence [TYPE ...]        (or: make rows ARGS="TYPE ...")

Each type is built small from its default config, and from one with another value for every key about positions that its
code reads, and observed (`evidence`). A type without a row is named; its configs are observed until it has one.
"""

import argparse
import importlib
import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from phasor.models.reading.row import Row
from phasor.models.rows import ROWS, stated
from phasor.support.plain_text import say

from .collect import collect
from .verdict import Tally, argued


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


def main(arguments: list[str] | None = None) -> int:
    """Print what differs; exit code 1 if anything does."""
    parser = argparse.ArgumentParser(prog="evidence", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("types", nargs="*", help="model types; all, if left out")
    parser.add_argument("--kept", type=Path, help="a file of what was observed, to go on after an interruption")
    parser.add_argument("--processes", type=int, default=2, help="how many models are observed at a time")
    options = parser.parse_args(arguments)
    names = options.types or list(config_classes())
    logging.getLogger("transformers").setLevel(logging.CRITICAL)  # after its import, which sets it
    new = new_types(names, stated())
    for name, cls in new.items():
        say(f"new: {name}: {cls.__name__}")
    changed = observe_all(observable(names), options.processes, options.kept)
    say(f"{len(new)} new, {changed} changed")
    return int(bool(new or changed))


def new_types(names: list[str], rows: Mapping[str, Any]) -> dict[str, Any]:
    """The types without a row whose config classes have rope parameters, and are not those of a row."""
    known = {row.get("config") for row in rows.values()}
    mapping = importlib.import_module("transformers").CONFIG_MAPPING
    without = [name for name in names if name not in rows]
    classes = {name: mapping[name] if name in mapping else config_classes()[name] for name in without}
    return {n: cls for n, cls in classes.items() if hasattr(cls, "rope_parameters") and cls.__name__ not in known}


def observable(names: list[str]) -> list[str]:
    """The types with a row that reads a rotation from their own configs, and with a class to build."""
    with_class = importlib.import_module("transformers").CONFIG_MAPPING
    rows = {name: ROWS[name] for name in names if name in ROWS and name in with_class}
    return [name for name, row in rows.items() if isinstance(row, Row) and row.readable and not row.composite]


def observe_all(names: list[str], processes: int, kept: Path | None) -> int:
    """Tell of each type in how many configs its row reads what is observed; in how many of all it does not."""
    tally, changed = Tally(), 0
    for done, (name, outcomes) in enumerate(collect(names, processes, kept), 1):
        tally.add(outcomes)
        equal = sum(one.kind == "equal" for one in outcomes)
        say(f"{done}/{len(names)} {name}: {equal} of {len(outcomes)} equal")
        for one in outcomes:
            if one.kind in ("differs", "not read", "not seen") and not argued(one):
                changed += 1
                where = one.change or "its default config"
                say("\n".join(f"{one.kind}: {name}, {where}: {what}: {why}" for what, why in one.why.items()))
    say(str(tally))
    return changed


if __name__ == "__main__":
    raise SystemExit(main())
