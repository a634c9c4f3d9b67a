"""A model's rotation in the spelling of a config, and in what a reading differs from what was wanted."""

import copy
from dataclasses import fields
from typing import Any, NamedTuple

from ...rotary.model_rotary import ModelRotary
from .composite import BASES, WIDTHS
from .keys import ROPE_WORDS
from .rope import EXCHANGED, FRACTION
from .row import Row
from .text import TextModel
from .text_row import ANY_NAMES, Rope
from .write_text import change, share_of, write_text

NOT_COMPARED = ("sources", "part", "parts", "notes")  # of the reading, not of the rotation
IN_CONFIGS = ("base", "scaling", "rotary_dim", "exponent_dim", "axes", "second")  # the others are the code's own
FOLLOW = ("softmax_factor", "temperatures", "max_position")
WITHOUT_ROW = TextModel("", rope=Rope(10_000.0, top=BASES[:2]), names=ANY_NAMES, widths=WIDTHS, partial=1.0)
ANOTHER = "take a config that can say it as like, or keep the spec as data (RotarySpec.to_dict)"


def write_part(
    row: Row | None, data: dict[str, Any], defaults: dict[str, Any], old: ModelRotary, new: ModelRotary
) -> None:
    """Change ``data``, from which ``old`` was read, so that it says ``new``, as far as its keys can.

    ``defaults``: what a composite config sets where ``data`` says nothing. A type without a row is spelled as most are.
    """
    if row is None or isinstance(row, TextModel):
        write_text(row or WITHOUT_ROW, data, defaults, old, new)
        return
    (before, *_), (after, *_) = old.distinct, new.distinct
    if any(spec.scaling is not None for spec in new.distinct):
        raise ValueError(f"the code of {old.model_type} has no scaling")
    ropes = [rope for name in ("rope_parameters", "rope_scaling") if isinstance(rope := data.get(name), dict) and rope]
    levels = (data, *ropes)
    if before.base != after.base:
        names = {key for level in levels for key, v in level.items() if ROPE_WORDS.search(key) and v == before.base}
        if not change(levels, names, after.base):
            for rope in ropes or [data.setdefault("rope_parameters", {"rope_type": "default"})]:
                rope[EXCHANGED] = after.base
    if before.rotary_dim != after.rotary_dim:
        change(levels, (FRACTION,), share_of(after.exponent_dim or after.rotary_dim, after.head_dim))


def repeat_above(levels: list[dict[str, Any]], before: dict[str, Any], after: dict[str, Any]) -> None:
    """Copies of changed keys in the configs around a part are changed alike; a null is no copy."""
    for level in levels:
        for key, value in before.items():
            if after[key] != value and value is not None and level.get(key) == value:
                level[key] = copy.deepcopy(after[key])


class NotWrittenError(ValueError):
    """No config of this family says the rotation; ``reason``: why, without the way out."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WriteDifference(NamedTuple):
    """In which a reading differs from what was wanted, in words, and the way out."""

    what: str
    out: str = ANOTHER


def first_difference(read: ModelRotary, wanted: ModelRotary) -> WriteDifference | None:
    """The first thing in which a reading differs from what was wanted; None where nothing does."""
    differs = {key: pair for key, pair in read.diff(wanted).items() if key not in NOT_COMPARED}
    if not differs:
        return None
    key, (can, want) = next(iter(differs.items()))
    if not isinstance(key, int):
        what = f"{key} of the model is {want!r:.120}, but what {read.model_type} makes of it is {can!r:.120}"
        follows = "change it in the model, too (dataclasses.replace), if it follows from what you changed"
        return WriteDifference(what, follows if key in FOLLOW else "take a config of that model as like")
    if can is None or want is None:
        rotates = "does not rotate" if want is None else "rotates"
        not_said = f"which this config of {read.model_type} does not say"
        return WriteDifference(f"layer {key} of the model {rotates}, {not_said}")
    name, (mine, theirs) = next(iter(can.diff(want).items()))
    pairs = enumerate(zip(read.layers, wanted.layers, strict=True))
    others = [i for i, (a, b) in pairs if a and b and getattr(a, name) == mine and getattr(b, name) != theirs]
    shared = f", in one place for layers {others[0]} and {key}" if others else ""
    in_configs = ("reads", f"in the spelling of this config{shared}")
    verb, where = in_configs if name in IN_CONFIGS else ("has", "in any config")
    if name == "scaling" and type(mine) is type(theirs):
        field = next(f.name for f in fields(theirs) if getattr(mine, f.name) != getattr(theirs, f.name))
        name, mine, theirs = f"scaling.{field}", getattr(mine, field), getattr(theirs, field)
    what = f"layer {key} of the model has {name} {theirs!r:.120}, but the code of {read.model_type}"
    return WriteDifference(f"{what} {verb} {mine!r:.120} {where}")
