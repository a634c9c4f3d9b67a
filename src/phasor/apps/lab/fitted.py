"""The scheme that is searched for one model: divisors of its frequencies that lower its loss on training text."""

from collections.abc import Callable

import torch

from ...rotary.scaling import LongRoPE
from ...rotary.spec import RotarySpec
from ...tools.fit.fit import INSIDE, PATIENCE, WINDOWS, known_schemes
from ...tools.fit.search import search

EVALUATIONS = 120

Loss = Callable[[RotarySpec, int, int], float]  # spec, length and number of windows -> nats per token


def fitted(spec: RotarySpec, trained: int, factor: int, loss: Loss, evaluations: int = EVALUATIONS) -> LongRoPE:
    """The search of `phasor.fit` with another loss, always with seed 0: what it finds, for ``factor * trained`` tokens.

    Windows of up to the trained length keep the model's own frequencies.
    """
    plain = spec.inv_freq()
    ones = (1.0,) * len(plain)

    def score(divisors: tuple[float, ...]) -> float:
        tried = spec.replace(scaling=LongRoPE(divisors, divisors, trained, float(factor), attention=1.0))
        return loss(tried, factor * trained, WINDOWS) + INSIDE * loss(tried, trained, WINDOWS)

    formulas = [spec.replace(scaling=scaling) for scaling in known_schemes(float(factor), trained).values()]
    starts = [tuple((plain / formula.inv_freq()).tolist()) for formula in formulas]
    with torch.no_grad():
        best = search(score, starts, factor, budget=evaluations, patience=PATIENCE, seed=0)
    return LongRoPE(ones, best.divisors, trained, float(factor), attention=1.0)
