"""Which models an engine has, and what their code reads, by its own registry: `has.json`, made by `renewal`."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from phasor.support.findings import Verdict

from .base import Engine, facts_of
from .engine_config import EngineConfig

EVIDENCE = Path(__file__).with_name("has.json")


@dataclass(frozen=True)
class Support:
    """``"right"``: the engine's registry names the model, and its code was read; ``"wrong"``: it has no such model."""

    verdict: Verdict
    reason: str = ""


@cache
def _evidence() -> dict[str, dict[str, Any]]:
    return json.loads(EVIDENCE.read_text(encoding="utf-8"))  # type: ignore[no-any-return]


def support_of(engine: Engine, config: EngineConfig) -> Support:
    """Whether ``engine`` has the model of a config. Engines without evidence refuse in their reader what they lack."""
    known = _evidence().get(engine.name)
    if known is None:
        return Support("right")
    name, called = _top(config), f"{engine.name} {known['version']}"
    source = f"[{known['source']}]"
    if name in known.get("gone", {}):
        architecture, last = known["gone"][name]
        return Support("wrong", f"{called} has no {architecture}: {last} was the last version with it {source}")
    if name in known.get("lacks", ()):
        return Support("wrong", f"{called} lists no class for {name} {source}")
    if changed := known.get("changed"):
        return Support(
            "not shown", f"what {called} does: {changed[0]} is another than in {engine.version}, that was read"
        )
    if "has" not in known:
        return Support("right")
    word = passes(engine.name, config)
    if not word:
        return Support("not shown", f"that {called} runs {name}: no class of its own has it {source}")
    if word in ("own", "none") and config.name not in facts_of(engine.name, dict):
        return Support("not shown", f"what the class of {called} for {config.name} makes of rope parameters {source}")
    return Support("right")


def passes(engine: str, config: EngineConfig) -> str:
    """What the engine's class passes on of rope parameters (`renewal.Modules.passes`); empty without a class.

    ``"backend"``: it runs transformers' own modules.
    """
    words = {name: word for word, names in _evidence()[engine]["has"].items() for name in names}
    found = [words.get(config.name, ""), words.get(_top(config), "")]
    return next((word for word in found if word not in ("", "none")), found[1])


def _top(config: EngineConfig) -> str:
    return str(config.data.get("model_type") or config.name)
