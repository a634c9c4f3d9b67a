"""Context-extension schemes: frozen dataclasses with a formula, its source and an example. `RotarySpec` takes one."""

from .rotary.scaling import (
    NTK,
    AtLength,
    DynamicNTK,
    Linear,
    Llama3,
    LongRoPE,
    NTKFixed,
    Proportional,
    Scaling,
    SteppedNTK,
    YaRN,
    YaRNPaper,
    register_scaling,
)

__all__ = [
    "AtLength",
    "DynamicNTK",
    "Linear",
    "Llama3",
    "LongRoPE",
    "NTK",
    "NTKFixed",
    "Proportional",
    "Scaling",
    "SteppedNTK",
    "YaRN",
    "YaRNPaper",
    "register_scaling",
]
