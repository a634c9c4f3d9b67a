"""What multiplies the products of queries and keys."""

import math
from collections.abc import Mapping
from typing import Any

from ..rotary.spec import RotarySpec
from .linear import plain_factor
from .sites import Site
from .tape import Operation, Tape

MULTIPLY = {"mul", "mul_", "div", "div_"}


def logit_scale(site: Site) -> float | None:
    """By what plain numbers in the code multiply q, k and their product, all together; None as for `product_scale`."""
    if (scale := product_scale(site)) is None:
        return None
    for side in (site.q, site.k):
        scale *= 1.0 if side.operator is None else side.operator.factor / side.operator.trained
    return scale


def product_scale(site: Site) -> float | None:
    """By what plain numbers in the code multiply the product of q and k.

    None where no softmax follows the product, or where something else than one number multiplies on the way to it.
    """
    tape, scale = site.q.tape, site.attention.scale
    if scale is None:
        scale, number = 1.0, site.attention.softmax
        if number is None:
            return None
        while number is not None and (maker := tape.maker(number)) is not None and maker.name not in ("bmm", "baddbmm"):
            if maker.name in MULTIPLY and not _by_one_number(tape, maker):
                return None
            scale *= plain_factor(tape, maker)
            number = next((i for i in maker.inputs if i in tape.data), None)
        product = None if number is None else tape.maker(number)
        scale *= 1.0 if product is None else float(product.kwargs.get("alpha", 1.0))  # of baddbmm
    return scale


def _by_one_number(tape: Tape, operation: Operation) -> bool:
    others = [tape.values[i] for i in operation.inputs if i not in tape.data]
    return len(operation.inputs) - len(others) == 1 and all(
        value.numel() > 0 and bool((value == value.reshape(-1)[0]).all()) for value in others
    )


def softmax_factor(site: Site, spec: RotarySpec, numbers: Mapping[str, Any]) -> float:
    """What YaRN's magnitude makes of the softmax scale (DeepSeek squares it), else 1.

    Only a factor that is the square of ``0.1 m ln(factor) + 1`` for a number ``m`` of the config is called so.
    """
    factor = getattr(spec.scaling, "factor", None)
    scale = logit_scale(site)
    if not factor or factor <= 1 or scale is None:
        return 1.0
    ratio = scale * math.sqrt(spec.head_dim)
    if abs(ratio - 1) < 1e-6:
        return 1.0
    for number in {1.0, *_numbers(numbers)}:
        squared = (0.1 * number * math.log(factor) + 1) ** 2
        if abs(ratio - squared) < 1e-6 * ratio:
            return squared
    return 1.0


def _numbers(value: Any) -> list[float]:
    if isinstance(value, Mapping):
        return [n for inner in value.values() for n in _numbers(inner)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < 100 else []
