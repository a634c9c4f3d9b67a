"""What an engine makes of a model: its rotation layer by layer, the length it takes, and the rules that led there."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...models.configs import ModelRotary
from .engine_config import Seen, look

Flags = Mapping[str, Any]  # as they are typed: {"--max-model-len": 131072, "--hf-overrides": {...}, "VARIABLE": "1"}


class CannotSayError(ValueError):
    """A rotation that an engine has no setting for, and why."""


@dataclass(frozen=True)
class Rule:
    """One thing that an engine does. ``run``: its own code was run and gave the same; else it was only read."""

    text: str
    source: str
    run: bool = False

    def describe(self) -> str:
        return f"{self.text} [{self.source}{'' if self.run else '; read, not run'}]"


@dataclass(frozen=True, kw_only=True)
class Reading:
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
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What to give to an engine: flags, environment variables (in capitals), a config.json, or keys of a GGUF file."""

    flags: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] | None = None
    gguf: dict[str, Any] | None = None


class Engine(ABC):
    """One engine, at one version: the flags that bear on positions, and its way from a config to a rotation.

    - ``flags``: name -> how its value is read from text. ``gone``: names that it had once -> what to use instead.
    """

    name: ClassVar[str]
    version: ClassVar[str]
    flags: ClassVar[Mapping[str, Callable[[str], Any]]] = {}
    gone: ClassVar[Mapping[str, str]] = {}

    @abstractmethod
    def read(self, seen: Seen, flags: Flags) -> Reading:
        """What it rotates; raises ``ValueError`` for settings with which it would not start."""

    @abstractmethod
    def write(self, seen: Seen, wanted: ModelRotary, length: int) -> list[Settings]:
        """Settings that may give the rotation ``wanted`` in sequences of ``length``, the handiest first.

        Whoever calls reads them back and takes the first that does. Raises `CannotSayError` where there are none.
        """

    def read_back(self, seen: Seen, settings: Settings) -> Reading:
        """What the engine rotates with these settings."""
        return self.read(seen if settings.config is None else look(settings.config), settings.flags)
