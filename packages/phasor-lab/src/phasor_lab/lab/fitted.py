"""The scheme that is searched for one model: divisors of its frequencies that lower its loss on training text."""

import math
import random

import torch
from torch import Tensor

from phasor import Rotation
from phasor.scaling import LongRoPE

from ..fitting.descent import descend
from ..fitting.fit import INSIDE
from ..fitting.objective import FAR, NEAR, WINDOWS, some_windows
from ..fitting.schemes import SCHEMES, divided
from ..running.windows import next_token_loss, windows_of
from .model import Decoder

STEPS = 100


def fitted(model: Decoder, text: Tensor, factor: int, steps: int = STEPS) -> LongRoPE:
    """The search of `phasor_lab.fit` for a rotary model of the lab, always with seed 0, on its training ``text``
    ``[n]``: what it finds for ``factor`` times the trained length.

    Windows of up to the trained length keep the model's own frequencies.
    """
    own, trained, tokens = model.config.rotary_spec, model.config.length, text.long()
    assert own is not None
    plain, length = own.inv_freq(), factor * trained
    ones = (1.0,) * len(plain)

    def loss(windows: Tensor, logarithms: Tensor) -> Tensor:
        positions = torch.arange(windows.shape[1] - 1)
        rotation = Rotation.at(own.replace(learned=True), positions, log_scale=-logarithms, dtype=torch.float32)
        return next_token_loss(model(windows[:, :-1], rotary=rotation), windows, "mean")

    def both(far: Tensor, near: Tensor, logarithms: Tensor) -> Tensor:
        return loss(far, logarithms) + INSIDE * loss(near, logarithms)

    def gradient(step: int, logarithms: Tensor) -> Tensor:
        dice, leaf = random.Random(f"0 {step}"), logarithms.detach().clone().requires_grad_()
        with torch.enable_grad():
            far = some_windows(tokens, length, FAR, dice)
            value = both(far, some_windows(tokens, trained, NEAR, dice), leaf)
            (slope,) = torch.autograd.grad(value, leaf)
        return torch.cat([value.detach()[None], slope])

    on, on_near = (windows_of("text", tokens, n, WINDOWS) for n in (length, trained))

    @torch.no_grad()
    def score(divisors: Tensor) -> float:
        return float(both(on, on_near, divisors.log()))

    start = min((divided(own, name, trained, length)[0] for name in SCHEMES), key=score)
    best = descend(gradient, start, 2 * math.pi / plain, trained, factor, steps=steps)
    best = min(start, best, key=score)
    return LongRoPE(ones, tuple(best.tolist()), trained, float(factor), attention=1.0)
