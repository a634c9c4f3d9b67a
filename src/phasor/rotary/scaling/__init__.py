"""Context-extension schemes, one file each: a frozen dataclass with its formula, its source and an example."""

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
    for scheme in (Linear, NTK, NTKFixed, DynamicNTK, SteppedNTK, YaRN, YaRNPaper, LongRoPE, Llama3, Proportional)
}

__all__ = [
    "NTK",
    "SCALINGS",
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
]
