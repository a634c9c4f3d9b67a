"""The kernels: which there are, a warm-up for a GPU, and what a kernel of your own is made of (docs/extending.md).

``kernel=`` or the variable ``PHASOR_KERNEL`` chooses one by its name.
"""

from .rotary.apply import warm_up
from .rotary.kernels import Angles, Kernel, Norm, Order, Pair, Reference, available, register_kernel

__all__ = ["Angles", "Kernel", "Norm", "Order", "Pair", "Reference", "available", "register_kernel", "warm_up"]
