"""What is wrong with one attention by the operators on its q and k: beside each other, and beside a spec."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ...eye.agreement import disagreement
from ...eye.scale import logit_scale
from ...eye.sites import Side, Site
from ...eye.spec import EVEN_HALF, Measured, NoSpec, measured
from ...rotary.spec import RotarySpec
from .expected import speeds

LOUD = EVEN_HALF  # of a pair: tables in half precision are no longer by less
SAME = 1e-4  # relative: numbers that a model multiplies by, and frequencies of float32 tables
STILL = 1e-6  # radians per position: too slow to be seen on a few tokens
MULTIPLIES = ("scal", "mult", "factor", "temper", "gain")
NAMES = {"q": "queries", "k": "keys"}


@dataclass(frozen=True)
class Fault:
    """``cause``: a few stable words; ``pair``: the first pair that it shows in."""

    cause: str
    says: str
    pair: int | None = None


def faults(site: Site, specs: Sequence[RotarySpec], module: nn.Module, softmax: float) -> Iterator[Fault]:
    """``specs``: those that the layer may have by the config; ``softmax``: the factor on its softmax scale."""
    if any(spec.second is not None for spec in specs):
        return
    for side in (site.q, site.k):
        if side.operator is not None and side.operator.second is not None:
            yield Fault("two angles in a pair", f"{NAMES[side.name]}: {side.seen.missing}")
            return
    if (loud := _loud(site.q) or _loud(site.k)) is not None:
        yield loud
        return
    if (apart := _apart(site)) is not None:
        yield apart
    elif (factor := _beside(site, module, softmax, known=bool(specs))) is not None:
        yield factor
    if specs and (other := _against(site, specs, module)) is not None:
        yield other


def _loud(side: Side) -> Fault | None:
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
    return Fault("one pair louder", f"{which} of the {NAMES[side.name]} is {times:.6g} times as long", pair)


def _apart(site: Site) -> Fault | None:
    """What keys do otherwise than queries, but for a trained factor and one for each token, which queries may have."""
    apart = disagreement(site)
    if apart is None or not apart.word or (apart.word.startswith("factor") and (site.q.trained or site.k.trained)):
        return None
    if apart.word.startswith("factor") and ("beside" in apart.says or _is_the_scale(site, apart.word)):
        return None  # the former is judged with the scale of the softmax
    return Fault(apart.word, apart.says)


def _is_the_scale(site: Site, word: str) -> bool:
    """Whether a factor is the scale that the softmax lacks: scores are as they must be."""
    operator = site.q.operator
    factor = float(word.rpartition(" ")[2])
    whole = 1.0 if operator is None else operator.channels**-0.5
    scale = logit_scale(site)
    if scale is None and site.k.operator is not None and operator is not None:
        return True  # no softmax has a scale: the keys carry it
    return scale is not None and math.isclose(abs(scale) * factor, whole, rel_tol=SAME)


def _beside(site: Site, module: nn.Module, softmax: float, known: bool) -> Fault | None:
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
            return Fault(f"factor on the {name}: {abs(factor):.6g}", says)
    return None


def _numbers(module: nn.Module) -> list[float]:
    """By which a module, or its config, says that it multiplies."""
    config: Any = getattr(module, "config", None)
    told: dict[str, Any] = config.to_dict() if callable(getattr(config, "to_dict", None)) else {}
    numbers = {**{k: v for k, v in told.items() if isinstance(v, float | int)}, **vars(module)}
    said = [v for n, v in numbers.items() if isinstance(v, float | int) and any(word in n for word in MULTIPLIES)]
    return [float(v) for v in said if v and not isinstance(v, bool)]


def _against(site: Site, specs: Sequence[RotarySpec], module: nn.Module) -> Fault | None:
    """Frequencies, layout and factor that are those of none of ``specs``; None too where they were not measured."""
    side = site.q if site.q.turns else site.k
    try:
        seen = measured(side)
    except NoSpec:
        return None
    if len(seen.found.coordinates) > 1 or _steps(seen) != 1 or any(spec.learned for spec in specs):
        return None
    half = any(p.dtype in (torch.bfloat16, torch.float16) for p in module.parameters())
    mine, within = _rates(seen), EVEN_HALF if half and not seen.found.exact else SAME
    found = [_differ(mine, _rates_of(spec), within) for spec in specs]
    if all(found):
        return found[0]
    factors = [spec.attention_factor(len(seen.found.coordinates[0])) for spec in specs]
    if any(abs(seen.factor / factor - 1) <= EVEN_HALF for factor in factors):
        return None
    says = f"cos and sin carry a factor of {seen.factor:.6g}, and must carry {factors[0]:.6g}"
    return Fault("attention factor", says)


def unmeasured(site: Site, specs: Sequence[RotarySpec]) -> str:
    """Why it is not known what frequencies turn the queries; empty too where their angles are those of a spec.

    Tables in half precision give no frequencies, but angles that are near.
    """
    side = site.q if site.q.turns else site.k
    try:
        measured(side)
    except NoSpec as reason:
        near = any(_near(side, spec) for spec in specs if not spec.learned and spec.second is None)
        return "" if near else str(reason)
    return ""


def _near(side: Side, spec: RotarySpec) -> bool:
    seen = side.operator
    if seen is None:
        return False
    rates = _rates_of(spec)
    values = torch.tensor([rates.get((min(p), max(p)), 0.0) * (1 if p[0] < p[1] else -1) for p in seen.pairs])
    apart = seen.angles - values[:, None].double() * torch.arange(seen.angles.shape[-1])
    return bool((apart / 2).sin().abs().max() <= EVEN_HALF) and set(rates) <= {(min(p), max(p)) for p in seen.pairs}


def _steps(seen: Measured) -> float:
    """By how much the coordinate grows from token to token; 0 where that is no one number."""
    steps = seen.found.coordinates[0].diff()
    return float(steps[0]) if bool((steps == steps[:1]).all()) else 0.0


Rates = dict[tuple[int, int], float]


def _rates(seen: Measured) -> Rates:
    sign = -1 if seen.reverse else 1
    return _by_channels(seen.place.layout.written().channels(), [sign * value for value in seen.values])


def _rates_of(spec: RotarySpec) -> Rates:
    """Radians per position, where all axes of a position are one number."""
    return _by_channels(spec.layout.written().channels(), speeds(spec))


def _by_channels(channels: Sequence[int], values: Sequence[float]) -> Rates:
    pairs = zip(channels, channels[len(values) :], values, strict=False)
    return {(min(a, b), max(a, b)): v if a < b else -v for a, b, v in pairs if abs(v) > STILL}


def _differ(mine: Rates, theirs: Rates, within: float) -> Fault | None:
    shared = {pair for pair in mine if pair in theirs}
    apart = [p for p in sorted(shared) if abs(mine[p] - theirs[p]) > within * abs(theirs[p]) + within / 10]
    missing = sorted(p for p in {*mine, *theirs} - shared if abs(mine.get(p, theirs.get(p, 0.0))) > within)
    if missing:
        return Fault("layout", f"channels {missing[0][0]} and {missing[0][1]} turn together in one of both only")
    if not apart:
        return None
    if all(abs(mine[p] + theirs[p]) <= within * abs(theirs[p]) + within / 10 for p in shared):
        return Fault("sign", "q and k turn in the other direction")
    first = apart[0]
    says = f"channels {first[0]} and {first[1]} turn by {mine[first]:.6g} a position, and must by {theirs[first]:.6g}"
    return Fault("frequencies", says, sorted(theirs).index(first))
