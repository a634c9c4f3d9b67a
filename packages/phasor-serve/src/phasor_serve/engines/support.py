"""Which models an engine has, as far as its own lists of classes were read: `has.json`, with sources."""

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from phasor.support.findings import Verdict

from .base import Engine
from .engine_config import EngineConfig


@dataclass(frozen=True)
class Support:
    """``"right"``: the engine's list names the model; ``"wrong"``: it says that it does not; else it is not shown."""

    verdict: Verdict
    reason: str = ""


@cache
def _lists() -> dict[str, dict[str, Any]]:
    text = (files(__package__) / "has.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def support_of(engine: Engine, config: EngineConfig) -> Support:
    """Whether ``engine`` has the model of a config. Engines without a list refuse in their reader what they lack."""
    known = _lists().get(engine.name)
    if known is None:
        return Support("right")
    name, called = str(config.data.get("model_type") or config.name), f"{engine.name} {engine.version}"
    if name in known.get("gone", {}):
        architecture, last = known["gone"][name]
        reason = f"{called} has no {architecture}: {last} was the last version with it"
        return Support("wrong", f"{reason} [{known['source']}]")
    if name in known.get("lacks", ()):
        return Support("wrong", f"{called} lists no class for {name} [{known['source']}]")
    if "has" not in known or name in known["has"] or name in by_transformers(engine.name):
        return Support("right")
    return Support("not shown", f"that {called} runs {name}: no class of its own has it [{known['source']}]")


def by_transformers(engine: str) -> frozenset[str]:
    """The model types that the engine runs with transformers' own modules."""
    return frozenset(_lists()[engine].get("backend", ()))
