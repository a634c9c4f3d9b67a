"""The schemes for a longer context that are one formula for every model."""

from collections.abc import Callable

from torch import Tensor

from phasor import RotarySpec
from phasor.scaling import NTK, DynamicNTK, Linear, Llama3, NTKFixed, Scaling, SteppedNTK, YaRN, YaRNPaper

# scheme -> its scaling for (factor, trained length)
SCHEMES: dict[str, Callable[[float, int], Scaling | None]] = {
    "none": lambda factor, trained: None,
    "linear": lambda factor, trained: Linear(float(factor)),
    "ntk": lambda factor, trained: NTK(float(factor)),
    "ntk_fixed": lambda factor, trained: NTKFixed(float(factor)),
    "dynamic": lambda factor, trained: DynamicNTK(float(factor), trained),
    "stepped_ntk": lambda factor, trained: SteppedNTK(trained),
    "yarn": lambda factor, trained: YaRN(float(factor), trained),
    "yarn_paper": lambda factor, trained: YaRNPaper(float(factor), trained),
    "llama3": lambda factor, trained: Llama3(float(factor), 1.0, 4.0, trained),
}
IN_CONFIGS = ("none", "linear", "yarn", "llama3")  # what a config of a longer declared length has a name for


def divided(spec: RotarySpec, scheme: str, trained: int, length: int) -> tuple[Tensor, float]:
    """The divisors ``[P]`` of a scheme at ``length``, and its factor on cos and sin."""
    scaled = spec.replace(scaling=SCHEMES[scheme](length / trained, trained))
    plain = spec.replace(scaling=None).inv_freq()
    return plain / scaled.inv_freq(length), scaled.attention_factor(length)
