"""What traps are looked for in: a config, an engine's flags, and the engine's reading of both."""

from dataclasses import dataclass
from typing import Any

from ..engines import Reading, Seen
from ..engines.engine_config import ROPES, walk

OVERRIDES = ("--hf-overrides", "--json-model-override-args")


def windowed(word: str) -> bool:
    """Whether the layers of a kind attend to a window, or a chunk, and never see the whole context."""
    return "sliding" in word or "chunked" in word


@dataclass(frozen=True)
class Trap:
    """A mistake: its number in ``docs/planner.md``, what it does here, and where it was reported or found."""

    number: int
    text: str
    source: str

    def __str__(self) -> str:
        return f"{self.text} [trap {self.number}; {self.source}]"


@dataclass(frozen=True)
class Case:
    """What is looked at: a config, how it is understood (None: not at all), an engine's flags and its reading."""

    data: dict[str, Any]
    seen: Seen | None
    engine: str
    flags: dict[str, Any]
    reading: Reading | None

    @property
    def text(self) -> dict[str, Any]:
        """The config of the text model, also where it is not understood."""
        if self.seen is not None:
            return self.seen.text
        inner = self.data.get("text_config")
        return inner if isinstance(inner, dict) else self.data

    @property
    def rope(self) -> dict[str, Any]:
        return next((found for name in ROPES if isinstance(found := self.text.get(name), dict) and found), {})

    @property
    def override(self) -> tuple[dict[str, Any], list[str]]:
        """What the flags override in the text model, and which keys they state outside of it."""
        given: dict[str, Any] = next((self.flags[name] for name in OVERRIDES if name in self.flags), {})
        return walk(given, self.seen.inside if self.seen else "")

    @property
    def given(self) -> dict[str, Any]:
        """The rope parameters of the override."""
        text, _ = self.override
        return next((found for name in ROPES if isinstance(found := text.get(name), dict)), {})

    def says(self, *words: str) -> str:
        """The first rule of the reading in which all the words stand."""
        rules = [rule.text for rule in self.reading.rules] if self.reading else []
        return next((text for text in rules if all(word in text for word in words)), "")
