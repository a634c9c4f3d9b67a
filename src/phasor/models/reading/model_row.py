"""What is known of a model type: one row of `phasor.models.families`, which reads its configs or says why not."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ...positions import Rule
from ..weights import Gguf, Weights
from .keys import Keys
from .model import ModelRotary


@dataclass(frozen=True)
class PartOf:
    """A part of a composite config that does not say what it is: its row, and what the composite class sets in it."""

    row: str
    defaults: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Row(ABC):
    """One model type.

    - ``parts``: key of a part -> what stands there, where the part itself does not say it.
    - ``inner``: further parts that the same config describes, by name: indexers, predictors.
    - ``frame``: its configs may also be no more than a frame around their parts.
    - ``weights``: the names of the tensors that hold q and k, in the state dict of transformers' model, or why there
      are none; ``published``: those of the published files, where they differ.
    - ``argued``: words of a difference from what transformers computes of its configs -> why it is right to differ.
    - ``gguf``: its architecture in GGUF files, where those hold the same tensors in another layout at most.
    - ``positions``: how it numbers images, video and sound among its text (`phasor.positions`).
    """

    readable: ClassVar[bool] = True
    text: ClassVar[bool] = False

    parts: Mapping[str, PartOf] = field(default_factory=dict)
    inner: Mapping[str, "Inner"] = field(default_factory=dict)
    frame: bool = False
    argued: Mapping[str, str] = field(default_factory=dict)
    positions: Rule | None = None
    weights: Weights | str = Weights()  # noqa: RUF009 (frozen)
    published: Weights | None = None
    gguf: Gguf | None = None

    @abstractmethod
    def read(self, name: str, data: dict[str, Any], path: str, above: dict[str, Any]) -> tuple[ModelRotary, Keys]:
        """The encoding of the config ``data`` at ``path`` (a prefix of keys), and its keys; ``above`` holds it.

        Raises `NoRotary` where there is nothing to read, and ``ValueError`` where it is not understood.
        """


@dataclass(frozen=True, kw_only=True)
class Inner(ABC):
    """A part that is described by the config of another; ``reads``: keys that only it reads."""

    reads: ClassVar[tuple[str, ...]] = ()

    weights: Weights = Weights()  # noqa: RUF009 (frozen)

    def stands_in(self, data: dict[str, Any]) -> bool:
        """Whether a model of this config has it."""
        return True

    @abstractmethod
    def read_inside(self, name: str, data: dict[str, Any], path: str, outer: ModelRotary) -> tuple[ModelRotary, Keys]:
        """Its encoding, beside that of the part around it."""


@dataclass(frozen=True)
class Chosen:
    """A name that stands for another row, by what the config says."""

    by: Callable[[dict[str, Any]], str]
