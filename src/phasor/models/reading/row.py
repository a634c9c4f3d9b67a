"""One row of `phasor.models.rows`: what is known of a model type, and how its configs are read, or why not."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...positions import Rule
from ...rotary.model_rotary import ModelRotary
from ..weights import Gguf, Weights
from .keys import Keys
from .refusal import Reason, Refused


class NoRotary(ValueError):
    """There is no rotary embedding to read: no fault of the config.

    >>> str(NoRotary("bert uses learned absolute positions"))
    'bert uses learned absolute positions'
    """


def no_rotary(model_type: str, encoding: str) -> NoRotary:
    return NoRotary(f"{model_type} {encoding}; it has no rotary embedding to read")


@dataclass(frozen=True)
class PartOf:
    """A part of a composite config that does not name its own type: its row, and what the composite class sets.

    ``fixed``: it is of that class whatever it calls itself.
    """

    row: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    fixed: bool = False


@dataclass(frozen=True, kw_only=True)
class Row(ABC):
    """One model type.

    - ``in_transformers``: False for a type whose code lives in its repository only: no class to compare the row with.
    - ``parts``: key of a part -> what is there, where the part itself does not say it.
    - ``sub_models``: further models that the same config describes, by name: indexers, predictors.
    - ``composite``: its configs may also do nothing but hold their parts.
    - ``known_deviations`` from transformers: text of the difference -> why it is right to differ.
    - ``positions``: how it numbers images, video and sound among its text (`phasor.positions`).
    - ``weights``: the names of the tensors that hold q and k, in the state dict of transformers' model, or why there
      are none; ``published``: those of the published files, where they differ.
    - ``gguf``: its architecture in GGUF files, where those hold the same tensors in another layout at most.
    """

    readable: ClassVar[bool] = True
    text: ClassVar[bool] = False

    in_transformers: bool = True
    parts: Mapping[str, PartOf] = field(default_factory=dict)
    sub_models: Mapping[str, "SubModel"] = field(default_factory=dict)
    composite: bool = False
    known_deviations: Mapping[str, str] = field(default_factory=dict)
    positions: Rule | None = None
    weights: Weights | str = Weights()  # noqa: RUF009 (frozen)
    published: Weights | None = None
    gguf: Gguf | None = None

    @abstractmethod
    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        """The encoding of the config ``data`` at ``path`` (a prefix of keys), and its keys.

        Raises `NoRotary` where there is nothing to read, and ``ValueError`` where it is not understood.
        """


@dataclass(frozen=True, kw_only=True)
class SubModel(ABC):
    """A model described by the config of another; ``reads``: keys that only it reads."""

    reads: ClassVar[tuple[str, ...]] = ()

    weights: Weights = Weights()  # noqa: RUF009 (frozen)

    def is_present(self, data: dict[str, Any]) -> bool:
        """Whether a model of this config has it."""
        return True

    @abstractmethod
    def read_inside(self, name: str, data: dict[str, Any], path: str, outer: ModelRotary) -> tuple[ModelRotary, Keys]:
        """Its encoding; ``outer``: that of the model whose config it is."""


@dataclass(frozen=True)
class Alias:
    """A name that stands for another row; ``versions``: the rows among which the config chooses by its ``version``."""

    row: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)

    def row_of(self, name: str, data: dict[str, Any]) -> str:
        """The row for this config; raises ``ValueError`` for a version that is not known."""
        version = data.get("version")
        key = str(float(version)) if isinstance(version, int | float) else ""
        if self.versions and key not in self.versions:
            known = " or ".join(self.versions)
            raise ValueError(f"version must say which language model this {name} holds ({known}), got {version!r}")
        return self.versions.get(key, self.row)


@dataclass(frozen=True)
class NonRotary(Row):
    """A model type without a rotation; ``encoding``: what it uses instead.

    ``unless``: a dotted key that enables a rotation, which is not read here.
    """

    encoding: str
    unless: str = ""
    readable: ClassVar[bool] = False

    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        """Raise `NoRotary`, or ``ValueError`` where the config enables a rotation."""
        value: Any = data
        for step in self.unless.split("."):
            value = value.get(step) if isinstance(value, dict) else None
        if self.unless and value not in (None, False):
            where, out = f"{path}{self.unless}", "describe it with RotarySpec"
            raise Refused(f"{where} is {value!r}: that rotation of {name} is not read; {out}", Reason.BEYOND, where)
        raise no_rotary(name, self.encoding)


@dataclass(frozen=True)
class Unreadable(Row):
    """A model type whose rotation no config describes, and why."""

    reason: str
    readable: ClassVar[bool] = False

    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        """Raise ``ValueError`` with the reason."""
        text = f"model_type {name!r} cannot be read: {self.reason}; describe what you need with RotarySpec"
        raise Refused(text, Reason.BEYOND, f"{path}model_type")


@dataclass(frozen=True, kw_only=True)
class CompositeModel(Row):
    """A composite model type of which something is known; all that rotates are its parts.

    ``ignores_rope_keys``: its configs carry rope keys next to the parts, which its code never reads.
    """

    ignores_rope_keys: bool = False

    composite: bool = True
    readable: ClassVar[bool] = False

    def read(self, name: str, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
        """Raise `NoRotary`: nothing but its parts rotates."""
        raise NoRotary(f"{name} has no rotation of its own, and no part in this config")


@dataclass(frozen=True)
class RotaryFlag:
    """A key that enables or disables the rotation of a family.

    - ``rotates``: the values with which it rotates; ``default``: the value of a config that leaves it out.
    - ``instead``: what the model uses otherwise.

    >>> RotaryFlag("alibi", (False,), False, "uses ALiBi").check("toy", Keys([("", {"alibi": True})]))
    Traceback (most recent call last):
    phasor.models.reading.row.NoRotary: toy uses ALiBi (alibi is True); it has no rotary embedding to read
    """

    key: str
    rotates: tuple[Any, ...]
    default: Any
    instead: str

    def check(self, model_type: str, keys: Keys) -> None:
        """Raise `NoRotary` if the key disables the rotation, ``ValueError`` for a value of another kind."""
        stated = keys.flag(self.key) if isinstance(self.rotates[0], bool) else keys.word(self.key)
        value = self.default if stated is None else stated
        if value not in self.rotates:
            raise no_rotary(model_type, f"{self.instead} ({self.key} is {value!r})")
        keys.explain(f"{value!r}: rotary", self.key)
