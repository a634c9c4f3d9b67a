"""What an engine makes of a model: its rotation layer by layer, the length it takes, and the rules that led there."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, TypeVar

from phasor import ModelRotary
from phasor.support.registry import register

from .engine_config import EngineConfig, load_config
from .serving import Serving

Flags = Mapping[str, Any]  # as they are typed: {"--max-model-len": 131072, "--hf-overrides": {...}, "VARIABLE": "1"}


class CannotSayError(ValueError):
    """A rotation that an engine has no setting for, and why."""


class NotReadError(CannotSayError):
    """A model of which it is not shown here what the engine's code does with its config."""


@dataclass(frozen=True)
class EngineRule:
    """One thing that an engine does. ``run``: its own code was run and gave the same; else it was only read."""

    text: str
    source: str
    run: bool = False

    def describe(self) -> str:
        return f"{self.text} [{self.source}{'' if self.run else '; read, not run'}]"


class Rules(list[EngineRule]):
    """What a reading has met so far."""

    def add(self, text: str, source: str, run: bool = False) -> None:
        self.append(EngineRule(text, source, run))

    def unread(self, stated: Mapping[str, Any], keys: Iterable[str], source: str, run: bool = False) -> None:
        """Of each of ``keys``, which the engine does not read, that it is not, where it is stated."""
        for key in keys:
            if stated.get(key) is not None:
                self.add(f"{key} is not read", source, run)


@dataclass(frozen=True, kw_only=True)
class EngineReading:
    """A config as one engine rotates it.

    - ``model``: one spec per layer, as in `ModelRotary`; frequencies and factors are this engine's.
    - ``length``: the longest sequence that it takes with these settings; None: it states none.
    - ``seq_len``: the length at which scalings that depend on it are to be taken, where the engine fixes that.
    - ``rules``: what it does otherwise than the model's own code, and with its flags.
    """

    engine: str
    version: str
    model: ModelRotary
    length: int | None
    seq_len: int | None = None
    rules: tuple[EngineRule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to give to an engine: flags, environment variables (in capitals), a config.json, or keys of a GGUF file."""

    flags: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] | None = None
    gguf: dict[str, Any] | None = None


class Engine(ABC):
    """One engine, at one version: the flags that bear on positions, and its way from a config to a rotation.

    - ``flags``: name -> how its value is read from text. ``gone``: names that it had once -> what to use instead.
    - ``serving``: how it is started, and what it does with a memory.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    flags: ClassVar[Mapping[str, Callable[[str], Any]]] = {}
    gone: ClassVar[Mapping[str, str]] = {}
    serving: ClassVar[Serving] = Serving()

    @abstractmethod
    def read(self, config: EngineConfig, flags: Flags) -> EngineReading:
        """What it rotates; raises ``ValueError`` for settings with which it would not start."""

    @abstractmethod
    def write(self, config: EngineConfig, wanted: ModelRotary, length: int) -> list[Settings]:
        """Settings that may give the rotation ``wanted`` in sequences of ``length``, the handiest first.

        Whoever calls reads them back and takes the first that does. Raises `CannotSayError` where there are none.
        """

    def reading(
        self, model: ModelRotary, length: int | None, rules: Rules, softmax: str, run: bool = False
    ) -> EngineReading:
        """What it makes of a config; ``softmax``: where its code multiplies the softmax, where a model has a factor."""
        if model.softmax_factor != 1:
            rules.add(f"the softmax scale is multiplied by {model.softmax_factor:.6g}", softmax, run)
        told = tuple(dict.fromkeys(rules))
        return EngineReading(engine=self.name, version=self.version, model=model, length=length, rules=told)

    def read_back(self, config: EngineConfig, settings: Settings) -> EngineReading:
        """What the engine rotates with these settings."""
        return self.read(config if settings.config is None else load_config(settings.config), settings.flags)


ENGINES: dict[str, Engine] = {}


def register_engine(engine: Engine) -> None:
    """Register an engine by its name for `read_as`, to `phasor_serve.plan` and to the command line.

    Raises ``ValueError`` for what is no `Engine`, and for a name that is taken.
    """
    if not isinstance(engine, Engine):
        raise ValueError(f"engine must be an instance of phasor_serve.engines.Engine, got {engine!r:.80}")
    register(ENGINES, "engine", engine.name, engine)


Fact = TypeVar("Fact")


@cache
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    text = (files(__package__) / "models.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]


def facts_of(engine: str, make: Callable[..., Fact]) -> dict[str, Fact]:
    """Model type -> what the engine's code does with it, each made by ``make`` from its fields."""
    tables = _tables()[engine].items()
    return {
        name: make(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()}) for name, fields in tables
    }
