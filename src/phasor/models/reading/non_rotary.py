"""Models and parts that are not read: those that do not rotate, and those whose configs do not say enough."""

from dataclasses import dataclass
from typing import Any, ClassVar

from .keys import Keys
from .model import ModelRotary
from .model_row import Row

LEARNED, ALIBI = "uses learned absolute positions", "uses ALiBi"
T5, NOPE = "uses T5's bucketed relative bias", "uses no position encoding in its attention"
SINUSOIDAL = "uses sinusoidal positions"


class NoRotary(ValueError):
    """There is no rotary embedding to read: no fault of the config.

    >>> str(NoRotary("bert uses learned absolute positions"))
    'bert uses learned absolute positions'
    """


@dataclass(frozen=True)
class Without(Row):
    """A model type without a rotation; ``encoding``: what it uses instead.

    ``unless``: a dotted key that turns a rotation on, which is not read here.
    """

    encoding: str
    unless: str = ""
    readable: ClassVar[bool] = False

    def read(self, name: str, data: dict[str, Any], path: str, above: dict[str, Any]) -> tuple[ModelRotary, Keys]:
        """Raise `NoRotary`, or ``ValueError`` where the config turns a rotation on."""
        value: Any = data
        for step in self.unless.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if self.unless and value not in (None, False):
            raise ValueError(
                f"{path}{self.unless} is {value!r}: that rotation of {name} is not read; describe it with RotarySpec"
            )
        raise no_rotary(name, self.encoding)


@dataclass(frozen=True)
class Unreadable(Row):
    """A model type whose rotation no config describes, and why."""

    reason: str
    readable: ClassVar[bool] = False

    def read(self, name: str, data: dict[str, Any], path: str, above: dict[str, Any]) -> tuple[ModelRotary, Keys]:
        """Raise ``ValueError`` with the reason."""
        raise ValueError(f"model_type {name!r} cannot be read: {self.reason}; describe what you need with RotarySpec")


@dataclass(frozen=True, kw_only=True)
class Frame(Row):
    """A composite model type of which something is known; all that rotates are its parts.

    ``deaf``: its configs carry rope keys beside the parts, which its code never reads.
    """

    deaf: bool = False

    frame: bool = True
    readable: ClassVar[bool] = False

    def read(self, name: str, data: dict[str, Any], path: str, above: dict[str, Any]) -> tuple[ModelRotary, Keys]:
        """Raise `NoRotary`: a frame has nothing of its own."""
        raise NoRotary(f"{name} has no rotation of its own, and no part in this config")


def no_rotary(model_type: str, encoding: str) -> NoRotary:
    return NoRotary(f"{model_type} {encoding}; it has no rotary embedding to read")


@dataclass(frozen=True)
class Switch:
    """A key that turns the rotation of a family on or off.

    - ``rotates``: the values with which it rotates; ``default``: the value of a config that does not say.
    - ``instead``: what the model uses otherwise.
    """

    key: str
    rotates: tuple[Any, ...]
    default: Any
    instead: str

    def check(self, model_type: str, keys: Keys) -> None:
        """Raise `NoRotary` if the key turns the rotation off, ``ValueError`` for a value of another kind."""
        stated = keys.flag(self.key) if isinstance(self.rotates[0], bool) else keys.word(self.key)
        value = self.default if stated is None else stated
        if value not in self.rotates:
            raise no_rotary(model_type, f"{self.instead} ({self.key} is {value!r})")
        keys.explain(f"{value!r}: rotary", self.key)
