"""One experiment: a config is read by its row, and a small model that transformers builds of it is observed."""

import copy
import json
import time
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

from phasor.models.configs import read_config
from phasor.models.reading.observed import large_as, seen_small
from phasor.models.reading.row import NoRotary
from phasor.rotary.model_rotary import ModelRotary
from phasor.support.errors import first_line

from .compare import differences

ARGUMENTS = Path(__file__).with_name("arguments.json")
Kind = Literal["equal", "differs", "refused", "not built", "not seen", "not read"]


@dataclass
class Outcome:
    """What an experiment came to.

    ``equal``: the row reads what was seen, or both say that nothing rotates. ``differs``: it does not. ``refused``: the
    row refuses a changed config. ``not built``: transformers does. ``not seen``: the eye could not describe what the
    model does. ``not read``: the row refuses its own default config. ``reads``: the keys that the model's code read.
    """

    model_type: str
    change: str
    kind: Kind
    why: dict[str, str] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
    seconds: float = 0.0


@cache
def arguments() -> dict[str, dict[str, Any]]:
    """Model type -> what its default config lacks to describe a model that runs, or to rotate."""
    data: dict[str, dict[str, Any]] = json.loads(ARGUMENTS.read_text(encoding="utf-8"))
    return data


def default_of(model_type: str) -> dict[str, Any]:
    """The barest config of a type that describes a model: all else is left to the defaults of its class."""
    return {"model_type": model_type, **copy.deepcopy(arguments().get(model_type, {}))}


def experiment(data: dict[str, Any], change: str = "") -> Outcome:
    """``change``: how this config differs from the default one, in words; empty for the default one itself."""
    start = time.process_time()
    outcome = Outcome(str(data["model_type"]), change, "equal")
    seen: ModelRotary | None = None
    try:
        small = seen_small(data)
        outcome.reads = sorted(small.reads)
        if small.observation.rotary is not None:
            seen = large_as(small, data, small.observation.rotary)
        elif not small.observation.nothing_turns:
            outcome.kind, outcome.why = "not seen", {"missing": "; ".join(small.observation.missing)}
    except Exception as error:  # each class refuses a config in its own way
        outcome.kind, outcome.why = "not built", {"error": first_line(error)}
    if outcome.kind == "equal":
        _judge(outcome, data, seen)
    outcome.seconds = round(time.process_time() - start, 2)
    return outcome


def _judge(outcome: Outcome, data: dict[str, Any], seen: ModelRotary | None) -> None:
    try:
        said: ModelRotary | None = read_config(data, part="")
    except NoRotary:
        said = None
    except ValueError as error:
        outcome.kind, outcome.why = ("refused" if outcome.change else "not read"), {"error": first_line(error)}
        return
    if seen is None or said is None:
        if seen is not said:
            which = ("nothing rotates, and the row reads a rotation", "it rotates, and the row reads nothing")
            outcome.kind, outcome.why = "differs", {"rotates": which[said is None]}
        return
    if why := differences(seen, said):
        outcome.kind, outcome.why = "differs", why
