"""A config read by phasor and by transformers: the same, refused by one of them, or where they differ."""

import re
import signal
from collections.abc import Callable
from types import FrameType
from typing import Any, NamedTuple

from computed import Turning, computed
from differences import differences
from unrotated import rotates, switched_off

from conformance.walk import quiet, rotating_configs
from phasor import ModelRotary, read_config, read_parts
from steps import counted_steps

STEPS = 2_000_000  # to read a config, of each reader; the largest sizes that are read take about half of them
HANGS = 200  # seconds of this process after which a reader is stopped; a config takes it milliseconds
THEIRS_HANGS = 60  # and transformers, which imports a model's code in two
LARGEST = 2**17  # layers and pixels beyond this are not given to transformers, which forms lists and grids of them
FORMED = re.compile(
    r"^(?!.*(token|vocab|position|theta|_id$|index$)).*(layer|depth|image_size|patch|grid|pattern|interval)"
)
Parts = dict[str, ModelRotary | str]
BAD = ("DISAGREE", "CRASH", "SLOW")


class Outcome(NamedTuple):
    """EQUAL, REFUSED, THEIRS REFUSES or NOT COMPARED; or one of `BAD`, which a test must not see."""

    kind: str
    why: str = ""
    part: str = ""


class TooLong(Exception):
    """A function was stopped by the clock."""


def outcome(data: dict[str, Any]) -> Outcome:
    return read_and_judged(data)[1]


def read_and_judged(data: dict[str, Any]) -> tuple[Parts | str, Outcome]:
    """What phasor reads, or its refusal, and how that compares."""
    with quiet():
        parts, bad = read(data)
        if bad or isinstance(parts, str):
            return parts, bad or Outcome("REFUSED", str(parts))
        if too_large(data):
            return parts, Outcome("NOT COMPARED", "sizes beyond any model")
        rotating_configs()  # read from the source once, which takes seconds
        try:
            theirs = within(THEIRS_HANGS, computed, data)
        except Exception as error:
            return parts, Outcome("THEIRS REFUSES", f"{type(error).__name__}: {error}"[:200].replace("\n", " "))
        return parts, judged(data, parts, theirs)


def read(data: dict[str, Any]) -> tuple[Parts | str, Outcome | None]:
    """What `read_parts` says, or the refusal of all; and the outcome, if it is a bad one."""
    parts: Parts | str = ""
    for reader in (read_config, read_parts):
        try:
            with counted_steps() as steps:
                parts = within(HANGS, reader, data)
        except ValueError as error:
            parts = str(error)
        except TooLong:
            return "", Outcome("SLOW", f"{reader.__name__}: more than {HANGS} s")
        except Exception as error:
            return "", Outcome("CRASH", f"{reader.__name__}: {type(error).__name__}: {error}")
        if steps.count > STEPS:
            return parts, Outcome("SLOW", f"{reader.__name__}: {steps.count:,} steps")
        for said in parts.values() if isinstance(parts, dict) else [parts]:
            if isinstance(said, str) and not (said and said.isprintable()):
                return parts, Outcome("CRASH", f"{reader.__name__}: not one line of printable text: {said!r}")
    return parts, None


def within(seconds: float, function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result; raises ``TooLong`` if it takes more seconds of this process, whoever else is at work."""

    def ring(signum: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return function(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def too_large(data: Any, key: str = "") -> bool:
    if isinstance(data, dict):
        return any(too_large(value, str(name)) for name, value in data.items())
    if isinstance(data, list):
        return any(too_large(value, key) for value in data)
    return bool(FORMED.search(key)) and isinstance(data, int | float) and data > LARGEST


def judged(data: dict[str, Any], parts: Parts, theirs: dict[str, Turning]) -> Outcome:
    compared, refused = 0, ""
    for path, model in parts.items():
        found, inner = owner(data, path, theirs)
        if isinstance(model, str):
            if model.startswith("not read"):
                refused = refused or model
            elif found and not inner and turning_itself(path, found, theirs):
                return Outcome("DISAGREE", f"transformers rotates here, phasor: {model}", path)
        elif found and found.refusal:
            refused = refused or f"their module: {found.refusal}"
        elif found:
            for difference in differences(model, found, inner):
                return Outcome("DISAGREE", difference, path)
            compared += 1
    for path, found in theirs.items():
        if path not in parts and found.modules.get(None) and stands(data, path):
            return Outcome("DISAGREE", "transformers rotates here, phasor names no such part", path)
    if compared:
        return Outcome("EQUAL")
    return Outcome("REFUSED", refused) if refused else Outcome("NOT COMPARED", "no part that both know rotates")


def owner(data: dict[str, Any], path: str, theirs: dict[str, Turning]) -> tuple[Turning | None, bool]:
    """Their config for a part, and whether it is only the one around it (an indexer).

    The text keys of some composite configs stand at the top.
    """
    if path == "" and "text_config" in theirs and not ("" in theirs and theirs[""].modules.get(None)):
        return theirs["text_config"], False
    if path in theirs:
        return theirs[path], False
    above = path.rpartition(".")[0]
    return (None, False) if stands(data, path) else (theirs.get(above), True)


def turning_itself(path: str, found: Turning, theirs: dict[str, Turning]) -> bool:
    """Whether a config has modules of its own that rotate, not those of a part inside it."""
    inside = any(other != path and other.startswith(f"{path}.".lstrip(".")) for other in theirs)
    layers = getattr(found.config, "num_hidden_layers", None)
    none = isinstance(layers, int) and 0 < layers < 99 and all(rotates(found.config, i) is False for i in range(layers))
    return bool(found.modules.get(None)) and not inside and not none and not switched_off(found.config)


def stands(data: Any, path: str) -> bool:
    """Whether a part stands in the config as an object; transformers forms parts that do not by their defaults."""
    for step in path.split("."):
        data = data.get(step) if isinstance(data, dict) else None
    return isinstance(data, dict)
