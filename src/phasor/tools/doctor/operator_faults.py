"""What is wrong with one attention by the operators on its q and k, beside each other."""

import math
from collections.abc import Sequence
from typing import Any

from torch import nn

from ...eye.agreement import disagreement
from ...eye.scale import logit_scale
from ...eye.sites import Side, Site
from ...eye.spec import EVEN_HALF, Measured
from ...rotary.spec import RotarySpec
from .deviation import Deviation

LOUD = EVEN_HALF  # of a pair: tables in half precision are no longer by less
SAME = 1e-4  # relative: numbers that a model multiplies by, and frequencies of float32 tables
STILL = 1e-6  # radians per position: too slow to be seen on a few tokens
MULTIPLIES = ("scal", "mult", "factor", "temper", "gain")
NAMES = {"q": "queries", "k": "keys"}


def fault_of(site: Site, module: nn.Module, softmax: float, known: bool) -> Deviation | None:
    """``softmax``: the factor on its softmax scale; ``known``: whether a config says what it must do."""
    for side in (site.q, site.k):
        if side.operator is not None and side.operator.second is not None:
            return Deviation("two angles in a pair", f"{NAMES[side.name]}: {side.seen.missing}")
    return _loud(site.q) or _loud(site.k) or _apart(site) or _beside(site, module, softmax, known)


def _loud(side: Side) -> Deviation | None:
    """Few pairs that are longer, at every token, than all others of their side."""
    if not side.turns or side.operator is None or side.trained:
        return None
    scale = side.operator.scale
    middle = scale.median()
    odd = ((scale / middle - 1).abs() > LOUD).all(-1).any(0)
    if not odd.any() or 2 * int(odd.sum()) > len(odd):
        return None
    pair = int(odd.nonzero()[0])
    times = float((scale / middle)[:, pair].flatten()[0])
    which = f"pair {pair}" if int(odd.sum()) == 1 else f"{int(odd.sum())} pairs, the first of which is {pair},"
    return Deviation("one pair louder", f"{which} of the {NAMES[side.name]} is {times:.6g} times as long", pair=pair)


def _apart(site: Site) -> Deviation | None:
    """What keys do otherwise than queries, but for a trained factor and one for each token, which queries may have."""
    apart = disagreement(site)
    if apart is None or not apart.word or (apart.word.startswith("factor") and (site.q.trained or site.k.trained)):
        return None
    if apart.word.startswith("factor") and ("beside" in apart.says or _is_the_scale(site, apart.word)):
        return None  # the former is judged with the scale of the softmax
    return Deviation(apart.word, apart.says)


def _is_the_scale(site: Site, word: str) -> bool:
    """Whether a factor is the scale that the softmax lacks: scores are as they must be."""
    operator = site.q.operator
    factor = float(word.rpartition(" ")[2])
    whole = 1.0 if operator is None else operator.channels**-0.5
    scale = logit_scale(site)
    if scale is None and site.k.operator is not None and operator is not None:
        return True  # no softmax has a scale: the keys carry it
    return scale is not None and math.isclose(abs(scale) * factor, whole, rel_tol=SAME)


def _beside(site: Site, module: nn.Module, softmax: float, known: bool) -> Deviation | None:
    """A plain number that multiplies q or k, where the softmax has its whole scale, and the model names no such one."""
    q, k = site.q.operator, site.k.operator
    if q is None or k is None or not (site.q.turns and site.k.turns) or site.q.seen.norms or site.k.seen.norms:
        return None
    if (scale := logit_scale(site)) is None:
        return None
    pure = abs(scale / (q.factor * k.factor))
    own = _numbers(module)
    whole = (q.channels**-0.5 * softmax, *own)
    if not any(math.isclose(pure, scale, rel_tol=SAME) for scale in whole):
        return None
    # by which queries are multiplied is a temperature of the softmax, which only a config can say to be wrong
    for side, factor in ((site.k, k.factor), (site.q, q.factor))[: 2 if known else 1]:
        if not (side.trained or any(math.isclose(abs(factor), number, rel_tol=SAME) for number in (1.0, *own))):
            name = NAMES[side.name]
            says = f"{name} are multiplied by {abs(factor):.6g}, and the softmax has its whole scale, {pure:.6g}"
            return Deviation(f"factor on the {name}: {abs(factor):.6g}", says)
    return None


def _numbers(module: nn.Module) -> list[float]:
    """By which a module, or its config, says that it multiplies."""
    config: Any = getattr(module, "config", None)
    told: dict[str, Any] = config.to_dict() if callable(getattr(config, "to_dict", None)) else {}
    numbers = {**{k: v for k, v in told.items() if isinstance(v, float | int)}, **vars(module)}
    said = [v for n, v in numbers.items() if isinstance(v, float | int) and any(word in n for word in MULTIPLIES)]
    return [float(v) for v in said if v and not isinstance(v, bool)]


def counts(seen: Measured) -> bool:
    """Whether its tokens stand at positions that go up by one."""
    steps = [coordinate.diff() for coordinate in seen.found.coordinates]
    return len(steps) == 1 and bool((steps[0] == 1).all())


def carries(seen: Measured, specs: Sequence[RotarySpec]) -> bool:
    """Whether its cos and sin have the attention factor of a spec, whatever else multiplies scores."""
    tokens = len(seen.found.coordinates[0])
    return any(abs(seen.factor / spec.attention_factor(tokens) - 1) <= EVEN_HALF for spec in specs)
