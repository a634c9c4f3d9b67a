"""A model's rotation in the spelling of a config: what differs is written where that config says it."""

import copy
from dataclasses import fields
from typing import Any, NamedTuple

from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec
from .keys import ROPE_WORDS
from .rope import EXCHANGED
from .row import Row
from .text import TextModel
from .write_text import FRACTION, alike, share_of, write_text

NOT_COMPARED = ("sources", "part", "parts", "notes")  # of the reading, not of the rotation
IN_CONFIGS = ("base", "scaling", "rotary_dim", "exponent_dim", "axes", "second")  # the others are the code's own
FOLLOW = ("softmax_factor", "temperatures", "max_position")


def write_part(
    row: Row | None, data: dict[str, Any], defaults: dict[str, Any], old: ModelRotary, new: ModelRotary
) -> None:
    """Change ``data``, from which ``old`` was read, so that it says ``new``, as far as the row knows how.

    ``defaults``: what a composite config sets where ``data`` says nothing.
    """
    if isinstance(row, TextModel):
        write_text(row, data, defaults, old, new)
    else:
        _write_where_stated(data, old, new)


def _write_where_stated(data: dict[str, Any], old: ModelRotary, new: ModelRotary) -> None:
    """The base, in the rope parameters or under a key of its own, and the share of channels if it is stated."""
    (before, *_), (after, *_) = old.distinct, new.distinct
    if any(spec.scaling is not None for spec in new.distinct):
        raise ValueError(f"the code of {old.model_type} has no scaling")
    ropes = [rope for name in ("rope_parameters", "rope_scaling") if isinstance(rope := data.get(name), dict) and rope]
    if before.base != after.base:
        stated = [
            (level, key)
            for level in (data, *ropes)
            for key, value in level.items()
            if ROPE_WORDS.search(key) and isinstance(value, int | float) and value == before.base
        ]
        if not stated and not ropes:
            data["rope_parameters"] = {"rope_type": "default", EXCHANGED: after.base}
        for level, key in stated or [(rope, EXCHANGED) for rope in ropes]:
            level[key] = alike(level.get(key), after.base)
    if before.rotary_dim != after.rotary_dim:
        shares = [level for level in (data, *ropes) if level.get(FRACTION) is not None]
        if not shares:
            raise ValueError(f"the code of {old.model_type} has no key for it")
        for level in shares:
            level[FRACTION] = share_of(after.exponent_dim or after.rotary_dim, after.head_dim)


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
    out: str


def _short(value: object) -> str:
    """A value in at most 120 characters.

    >>> _short("a" * 200)[-6:]
    'aaa...'
    """
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."


def first_difference(read: ModelRotary, wanted: ModelRotary) -> WriteDifference | None:
    """The first thing in which a reading differs from what was wanted; None where nothing does."""
    differs = {key: pair for key, pair in read.diff(wanted).items() if key not in NOT_COMPARED}
    if not differs:
        return None
    key, (can, want) = next(iter(differs.items()))
    if not isinstance(key, int):
        out = "change it in the model, too (dataclasses.replace), if it follows from what you changed"
        return WriteDifference(
            f"{key} of the model is {_short(want)}, but what {read.model_type} makes of it is {_short(can)}",
            out if key in FOLLOW else "take a config of that model as like",
        )
    if can is None or want is None:
        rotates = "does not rotate" if want is None else "rotates"
        return WriteDifference(
            f"layer {key} of the model {rotates}, which this config of {read.model_type} does not say",
            "take one that does as like",
        )
    return _of_layer(key, can, want, read, wanted)


def _of_layer(layer: int, can: RotarySpec, want: RotarySpec, read: ModelRotary, wanted: ModelRotary) -> WriteDifference:
    name, (mine, theirs) = next(iter(can.diff(want).items()))
    of, code = f"layer {layer} of the model has", f"the code of {read.model_type}"
    out = "take a config that can say it as like, or keep the spec as data (RotarySpec.to_dict)"
    if name not in IN_CONFIGS:
        return WriteDifference(f"{of} {name} {_short(theirs)}, but {code} has {_short(mine)} in any config", out)
    pairs = enumerate(zip(read.layers, wanted.layers, strict=True))
    others = [i for i, (a, b) in pairs if a and b and getattr(a, name) == mine and getattr(b, name) != theirs]
    shared = f", in one place for layers {others[0]} and {layer}" if others else ""
    if name == "scaling" and type(mine) is type(theirs):
        field = next(f.name for f in fields(theirs) if getattr(mine, f.name) != getattr(theirs, f.name))
        name, mine, theirs = f"scaling.{field}", getattr(mine, field), getattr(theirs, field)
    return WriteDifference(
        f"{of} {name} {_short(theirs)}, but {code} reads {_short(mine)} in the spelling of this config{shared}", out
    )
