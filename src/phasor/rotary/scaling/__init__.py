"""Context-extension schemes, one file each: a frozen dataclass with its formula, its source and an example."""

from ...support.registry import check_scheme, register
from .at_length import AtLength
from .base import Scaling
from .dynamic_ntk import DynamicNTK, SteppedNTK
from .linear import Linear
from .llama3 import Llama3
from .longrope import LongRoPE
from .ntk import NTK
from .ntk_fixed import NTKFixed
from .proportional import Proportional
from .yarn import YaRN, YaRNPaper

SCALINGS: dict[str, type[Scaling]] = {
    scheme.name: scheme
    for scheme in (
        Linear,
        NTK,
        NTKFixed,
        DynamicNTK,
        SteppedNTK,
        YaRN,
        YaRNPaper,
        LongRoPE,
        Llama3,
        Proportional,
        AtLength,
    )
}


def register_scaling(cls: type[Scaling]) -> type[Scaling]:
    """Register a scaling of your own, so that a `RotarySpec` can have it, and be written to data and read back.

    ``cls`` is a frozen dataclass that inherits from `Scaling` and has a ``name``; it is returned, so this is a
    decorator, too. Compiled code forms specs anew from their text, so register before you compile. Raises
    ``ValueError`` for a name that is taken and for a class that is no such thing. `docs/extending.md` has an example.

    >>> register_scaling(Linear) is Linear  # what is registered already may be registered again
    True
    """
    check_scheme("scaling", cls, Scaling)
    register(SCALINGS, "scaling", getattr(cls, "name", None), cls)
    return cls


__all__ = [
    "NTK",
    "SCALINGS",
    "AtLength",
    "DynamicNTK",
    "Linear",
    "Llama3",
    "LongRoPE",
    "NTKFixed",
    "Proportional",
    "Scaling",
    "SteppedNTK",
    "YaRN",
    "YaRNPaper",
    "register_scaling",
]
