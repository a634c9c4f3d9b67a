"""What is wrong with a gradient alone: a rotation's is turned back by its angles, and multiplied by its factor."""

from dataclasses import dataclass

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


def of_rounding(gradient: Gradient) -> tuple[str, str] | None:
    """As `of_gradient`, where nothing else explains it: all of it is nearly right."""
    apart, size = (gradient.got - gradient.must).abs().max(), gradient.must.abs().max()
    says = "the gradient is right to half precision only"
    return ("gradient in half precision", says) if bool(apart <= COARSE * size) else None


def of_gradient(gradient: Gradient) -> tuple[str, str] | None:
    """Cause and sentence of a gradient that is wrong; None for none of these: it may be that of another rotation."""
    got, must, forwards = gradient.got, gradient.must, gradient.forwards
    if not bool(got.any()):
        return DETACHED
    if not bool(got.isfinite().all()):
        return "gradient is not finite", "some of its gradients are no numbers"
    times = float((got * must).sum() / (must * must).sum())
    if abs(times - 1) > UNLIKE and abs(times) > UNLIKE and gradient.like(times * must):
        return "factor of the gradient", f"the gradient is {times:.6g} times as long as it must be"
    if forwards is not None:
        if gradient.like(forwards):
            says = "the gradient is turned by the forward's own sign, and must be turned back"
            return "sign of the gradient", says
        # both ways share what cosines make of it; what sines make has the other sign
        for name, part in (("cosines", (must + forwards) / 2), ("sines", (must - forwards) / 2)):
            if gradient.like(part):
                return "half of the gradient", f"the gradient comes back through the {name} alone"
    wrong = (got - must).abs() > gradient.allowed
    if bool(wrong.any()) and not bool(got[wrong].any()):
        return "half of the gradient", "some of the gradient is lost, and the rest is right"
    return None
