"""What is wrong with a gradient alone: a rotation's is turned back by its angles, and multiplied by its factor."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

DETACHED = ("no gradient", "nothing of the gradient comes back through the rotation: is it detached?")
UNLIKE = 1e-2  # a factor that is farther from 1 is no rounding
COARSE = 0.1  # of the largest value: what rounding to half precision leaves


@dataclass(frozen=True)
class Gradient:
    """The gradient that came, the one that must be, and what comes in turned forwards instead (None: not known).

    ``allowed``: how far a value may be off.
    """

    got: Tensor
    must: Tensor
    forwards: Tensor | None
    allowed: Tensor | float

    def like(self, other: Tensor) -> bool:
        return bool(((self.got - other).abs() <= self.allowed).all())

    @cached_property
    def parts(self) -> dict[str, Tensor]:
        """Both ways share what cosines make of it; what sines make has the other sign."""
        return (
            {}
            if self.forwards is None
            else {"cosines": (self.must + self.forwards) / 2, "sines": (self.must - self.forwards) / 2}
        )


def _none(g: Gradient) -> str | None:
    return None if bool(g.got.any()) else DETACHED[1]


def _not_finite(g: Gradient) -> str | None:
    return None if bool(g.got.isfinite().all()) else "some of its gradients are no numbers"


def _factor(g: Gradient) -> str | None:
    times = float((g.got * g.must).sum() / (g.must * g.must).sum())
    alike = abs(times - 1) > UNLIKE and abs(times) > UNLIKE and g.like(times * g.must)
    return f"the gradient is {times:.6g} times as long as it must be" if alike else None


def _sign(g: Gradient) -> str | None:
    if g.forwards is None or not g.like(g.forwards):
        return None
    return "the gradient is turned by the forward's own sign, and must be turned back"


def _half(g: Gradient) -> str | None:
    for name, part in g.parts.items():
        if g.like(part):
            return f"the gradient comes back through the {name} alone"
    wrong = (g.got - g.must).abs() > g.allowed
    lost = bool(wrong.any()) and not bool(g.got[wrong].any())
    return "some of the gradient is lost, and the rest is right" if lost else None


# One row a fault: its cause, and what is said where it is that one.
FAULTS: tuple[tuple[str, Callable[[Gradient], str | None]], ...] = (
    (DETACHED[0], _none),
    ("gradient is not finite", _not_finite),
    ("factor of the gradient", _factor),
    ("sign of the gradient", _sign),
    ("half of the gradient", _half),
)


def of_rounding(gradient: Gradient) -> tuple[str, str] | None:
    """As `of_gradient`, where nothing else explains it: all of it is nearly right."""
    apart, size = (gradient.got - gradient.must).abs().max(), gradient.must.abs().max()
    says = "the gradient is right to half precision only"
    return ("gradient in half precision", says) if bool(apart <= COARSE * size) else None


def of_gradient(gradient: Gradient) -> tuple[str, str] | None:
    """Cause and sentence of a gradient that is wrong; None for none of `FAULTS`: it may be that of another rotation."""
    found = ((cause, says(gradient)) for cause, says in FAULTS)
    return next(((cause, text) for cause, text in found if text is not None), None)
