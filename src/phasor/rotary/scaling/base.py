"""What every scaling scheme has: new frequencies in two arithmetics, and one factor on cos and sin."""

from __future__ import annotations

from abc import ABC, abstractmethod
from decimal import Decimal
from typing import TYPE_CHECKING, ClassVar, TypeVar

from ...support.checks import whole
from ...support.registry import register_scheme

if TYPE_CHECKING:
    from torch import Tensor


class Scaling(ABC):
    """A map from the plain ladder ``base ** (-2i / dim)`` to the frequencies that are used.

    `inv_freq` is the definition, in exact decimals. `inv_freq_float32` repeats the arithmetic of transformers, bit for
    bit, for checkpoints that must see the frequencies they were trained with. Both give ``[dim / 2]`` values.

    ``seq_len`` is the length of the whole sequence, prompt and generation, and stays fixed while that sequence lives:
    keys in a cache must not be rotated with other frequencies than later queries. Schemes that ignore it are static;
    for the others (`length_dependent`) ``None`` means a sequence inside the trained length.
    """

    name: ClassVar[str]
    length_dependent: ClassVar[bool] = False
    two_regimes: ClassVar[bool] = False  # one set of frequencies inside the trained length and one beyond, no others
    caution: ClassVar[str] = ""  # where the models that use it do something else, a note for whoever reads their config

    @property
    def trained_length(self) -> int | None:
        """The length of the sequences it starts from, where the scheme knows one."""
        length: int | None = getattr(self, "original_max_position", None)
        return length

    def factor_at(self, seq_len: int | None = None) -> Decimal | float | None:
        """By how much it slows its slowest pairs in a sequence of that length; None where no single number says it."""
        factor: float | None = getattr(self, "factor", None)
        return factor

    def regime(self, seq_len: int) -> int:
        """One length for all that have the frequencies of ``seq_len``; itself where every length has its own."""
        return seq_len

    @abstractmethod
    def inv_freq(self, base: Decimal, dim: int, seq_len: int | None = None) -> list[Decimal]:
        """``[dim / 2]`` frequencies in radians per position, exact."""

    @abstractmethod
    def inv_freq_float32(self, base: float, dim: int, seq_len: int | None = None) -> Tensor:
        """``[dim / 2]`` float32 frequencies, in the order of operations of transformers."""

    def attention_factor(self, seq_len: int | None = None) -> float:
        """The factor on cos and on sin; scores of rotated channels grow by its square."""
        return 1.0

    def softmax_factor(self) -> float:
        """The factor on the softmax scale of latent attention (DeepSeek's)."""
        return 1.0


SCALINGS: dict[str, type[Scaling]] = {}
Scheme = TypeVar("Scheme", bound=Scaling)


def register_scaling(cls: type[Scheme]) -> type[Scheme]:
    """Register a scaling of your own, so that a `RotarySpec` can have it, and be written to data and read back.

    ``cls`` is a frozen dataclass that inherits from `Scaling` and has a ``name``; it is returned, so this is a
    decorator, too. Compiled code forms specs anew from their text, so register before you compile. Raises
    ``ValueError`` for a name that is taken and for a class that is no such thing. `docs/extending.md` has an example.

    >>> from phasor.scaling import Linear
    >>> register_scaling(Linear) is Linear  # what is registered already may be registered again
    True
    """
    register_scheme(SCALINGS, "scaling", cls, Scaling)
    return cls


def check_seq_len(seq_len: int | None) -> None:
    if seq_len is not None:
        whole("seq_len", seq_len)


def check_trained_length(original_max_position: int | None) -> None:
    try:
        whole("original_max_position", original_max_position)
    except ValueError as error:
        raise ValueError(
            f"{error}; it is the length that the model was trained on before scaling "
            "(original_max_position_embeddings in its config, or else max_position_embeddings)"
        ) from None
