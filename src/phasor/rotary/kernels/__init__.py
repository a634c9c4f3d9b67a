"""Kernels: one file each. `available` names them; ``kernel=`` or the variable ``PHASOR_KERNEL`` chooses one."""

from torch import Tensor

from ...support.registry import register
from .base import CHOSEN, Angles, Kernel, Pair
from .cache import Cache
from .eager import Eager
from .native import kernel as native
from .native.kernel import Native
from .norm import Norm, Rounding
from .onnx import Onnx
from .operator import Operator
from .order import ORDERS, Order
from .reference import Reference
from .triton import plans
from .triton.kernel import Triton

# In the order in which they are asked. The reference rotates everything, so what stands behind it is taken by name.
KERNELS: list[Kernel] = [Native(), Operator(), Triton(), Eager(), Reference(), Onnx()]


def available() -> dict[str, str]:
    """The kernels by name, in the order in which ``kernel="auto"`` asks them, each with what it is for.

    >>> list(available())
    ['native', 'operator', 'triton', 'eager', 'reference', 'onnx']
    """
    return {kernel.name: kernel.about for kernel in KERNELS}


def register_kernel(kernel: Kernel, *, before: str = "reference") -> Kernel:
    """Put a kernel of your own into the table, where ``kernel="auto"`` asks it before the one that is named.

    Its results must be those of `reference`, to the bit. Returns it. Raises ``ValueError`` for what is no `Kernel`, for
    a name that is taken, and for an unknown ``before``. `docs/extending.md` has an example.

    >>> register_kernel(KERNELS[0]).name  # what is in the table already stays where it is
    'native'
    """
    if not isinstance(kernel, Kernel):
        raise ValueError(f"kernel must be a Kernel, got {kernel!r}; inherit from phasor.kernels.Kernel")
    if kernel.name == "auto":
        raise ValueError("the name of this kernel must not be 'auto', which chooses among all; choose another name")
    table = {known.name: known for known in KERNELS}
    if before not in table:
        raise ValueError(f"before must be one of {', '.join(map(repr, table))}, got {before!r}")
    register(table, "kernel", kernel.name, kernel)
    if kernel not in KERNELS:
        plans.only_by_name()
        KERNELS.insert(list(table).index(before), kernel)
    return kernel


def choose(name: str, q: Tensor, k: Tensor | None, angles: Angles, norm: Norm | None = None) -> Kernel:
    """The kernel of that name; for ``"auto"`` the first that can. ``ValueError`` if a named one cannot."""
    name = CHOSEN if name == "auto" else name
    for kernel in KERNELS:
        if name in ("auto", kernel.name):
            reason = kernel.why_not(q, k, angles) or ("" if norm is None else kernel.why_not_norm(q, k, norm))
            if not reason:
                return kernel
            if name != "auto":
                raise ValueError(f"kernel={name!r} cannot rotate these: {reason}; use kernel='reference'")
    check_name(name)
    raise AssertionError("the reference rotates everything")


def check_name(name: str) -> None:
    """``ValueError`` unless ``name`` is that of a kernel, or ``"auto"``."""
    if name != "auto" and name not in available():
        source = " from the variable PHASOR_KERNEL" if name == CHOSEN else ""
        raise ValueError(f"kernel must be 'auto' or one of {', '.join(map(repr, available()))}, got {name!r}{source}")


__all__ = [
    "KERNELS",
    "ORDERS",
    "Angles",
    "Cache",
    "Eager",
    "Kernel",
    "Native",
    "Norm",
    "Onnx",
    "Operator",
    "Order",
    "Pair",
    "Reference",
    "Rounding",
    "Triton",
    "available",
    "check_name",
    "choose",
    "native",
    "register_kernel",
]
