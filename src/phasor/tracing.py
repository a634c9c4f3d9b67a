"""What a compiler must not look into."""

from collections.abc import Callable
from typing import TypeVar

F = TypeVar("F", bound=Callable)


def constant(function: F) -> F:
    """Its result is a constant to torch.compile and torch.export, whatever computes it; arguments must be plain data.

    The same mark as ``torch.compiler.assume_constant_result`` sets; calling that would import the compiler, which takes
    a second, whenever phasor is imported.
    """
    setattr(function, "_dynamo_marked_constant", True)  # noqa: B010
    return function
