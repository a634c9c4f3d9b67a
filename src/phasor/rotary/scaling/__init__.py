"""Context-extension schemes, one file each: a frozen dataclass with its formula, its source and an example."""

from ...support.registry import import_all
from .at_length import AtLength
from .base import SCALINGS, Scaling, register_scaling
from .dynamic_ntk import DynamicNTK, SteppedNTK
from .linear import Linear
from .llama3 import Llama3
from .longrope import LongRoPE
from .ntk import NTK
from .ntk_fixed import NTKFixed
from .proportional import Proportional
from .yarn import YaRN, YaRNPaper

import_all(__name__, __path__)  # each registers its own

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
