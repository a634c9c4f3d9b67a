"""What keys are seen to do otherwise than queries, and one attention of a layer otherwise than another.

Both must turn alike, or a score says nothing of the distance.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from .frequencies import Frequencies
from .scale import logit_scale
from .sites import Side, Site
from .spec import EVEN, Measured, NoSpec, Sighting, measured

STEPS = 1e-4  # relative: the step from token to token is a number of its own beyond this
TURNED = 1e-3  # radians: a pair turns otherwise beyond this
ALIKE = 1e-6  # and alike below this: what grows from token to token is a frequency, not a place
MEASURED = 1e-7  # radians per step: what float32 angles of the first positions leave open


@dataclass(frozen=True)
class Disagreement:
    """``word``: what differs (``"frequencies"``), in a few stable words; empty where one side is not understood.
    ``says``: the sentence."""

    word: str
    says: str


def disagreement(site: Site) -> Disagreement | None:
    """None where one spec says what queries and keys do, or only one of them turns."""
    if not (site.q.turns and site.k.turns):
        return None
    if (few := _few(site)) is not None:
        return few
    try:
        q, k = measured(site.q), measured(site.k)
    except NoSpec as reason:
        return Disagreement("", str(reason))
    if q.place.layout != k.place.layout:
        says = f"queries turn in {q.place.layout.describe()}, keys in {k.place.layout.describe()}"
        return Disagreement("layout", says)
    if (steps := _steps(q, k)) != 1:
        says = f"keys are counted in steps of {steps:.6g} of the queries'"
        return Disagreement("positions" if q.seen.cos.shape == k.seen.cos.shape else "", says)
    if q.axis != k.axis or not _near(q, k):
        return Disagreement("frequencies", "queries and keys turn by different frequencies")
    if q.reverse != k.reverse:
        return Disagreement("sign", "queries and keys turn in opposite directions")
    if (factor := _factors(site, q, k)) is not None:
        return factor
    mine, theirs = (_stand(m.found) for m in (q, k))
    if mine.shape == theirs.shape and not torch.equal(mine, theirs):
        return Disagreement("positions", "keys turn by other positions than queries")
    return None


def _few(site: Site) -> Disagreement | None:
    """What less than half of the pairs, or of the tokens, do otherwise, whatever a spec says."""
    q, k = site.q.operator, site.k.operator
    if q is None or k is None or not (q.second is k.second is None):
        return None
    if (theirs := k.of_pairs(q.pairs, q.inputs)) is None:
        return None
    mine = torch.complex(q.cos, q.sin)
    if mine.shape[1:] != theirs.shape[1:] or any(bool((one != one[:1]).any()) for one in (mine, theirs)):
        return None
    apart, both = (theirs[0] * mine[0].conj()).angle(), (theirs[0] * mine[0]).angle()  # [pairs, tokens]
    other = apart.abs() > TURNED
    pairs, tokens = other.any(1), other.any(0)
    few_pairs, few_tokens = (0 < 2 * int(some.sum()) < len(some) for some in (pairs, tokens))
    if (few_tokens and float(apart[:, ~tokens].abs().max()) < ALIKE) or (
        few_pairs and bool(((apart - apart[:, :1]).abs() <= TURNED).all())
    ):
        return Disagreement(
            "positions", f"token {int(tokens.nonzero()[0])} of the keys stands elsewhere than the query's"
        )
    if not few_pairs:
        return None
    which = f"{int(pairs.sum())} of {len(pairs)} pairs of the keys, the first of which is {int(pairs.nonzero()[0])},"
    if (both.abs() <= TURNED)[pairs].all():
        return Disagreement("sign", f"{which} turn the other way than those of the queries")
    return Disagreement("frequencies", f"{which} turn otherwise than those of the queries")


def beside_others(site: Site) -> bool:
    """Whether queries turn beside keys that come from elsewhere, and do not: a picture's beside words."""
    queries, keys = site.tokens
    return site.q.turns and not site.k.turns and not site.k.seen.missing and queries != keys


def turns_as_rows_of(q: Side, k: Side) -> bool:
    """Whether each token of one side turns as some token of the other: a picture's, whose frame stands at one place."""
    if q.operator is None or k.operator is None:
        return False
    mine = q.operator.of_pairs(k.operator.pairs, k.operator.inputs)
    theirs = torch.complex(k.operator.cos, k.operator.sin)
    if mine is None or any(bool((one != one[:1]).any()) for one in (mine, theirs)):
        return False
    return all(bool((token == theirs[0].T).all(1).any()) for token in mine[0].T)


def _steps(q: Measured, k: Measured) -> float:
    """By how much faster all pairs of the keys turn from token to token, where that is one number; else 1."""
    ratios = [b / a for a, b in zip(q.values, k.values, strict=True) if a]
    if not ratios or q.axis != k.axis or abs(ratios[0] - 1) < STEPS:
        return 1.0
    return ratios[0] if all(abs(ratio / ratios[0] - 1) < STEPS for ratio in ratios) else 1.0


def _stand(found: Frequencies) -> Tensor:
    """Where all tokens stand ``[axes, tokens]``, those that pass at 0, where nothing turns."""
    return nn.functional.pad(torch.stack(found.coordinates), (found.before, found.after))


def _near(q: Measured, k: Measured) -> bool:
    """Whether frequencies are the same: to the bit where both stand on the tape, else as near as they are measured."""
    if q.found.exact and k.found.exact:
        return q.values == k.values
    return all(abs(a - b) <= EVEN * abs(a) + MEASURED for a, b in zip(q.values, k.values, strict=True))


def _even_scale(site: Site, q: Measured, k: Measured) -> bool:
    """Whether what multiplies the keys is the softmax scale, or a part: one over the root of the width, in all."""
    scale = logit_scale(site)
    scale = q.seen.factor * k.seen.factor if scale is None else scale
    return abs(scale * math.sqrt(k.seen.channels) - 1) < EVEN


def _factors(site: Site, q: Measured, k: Measured) -> Disagreement | None:
    ratio = k.factor / q.factor
    if abs(ratio - 1) > EVEN:
        says = f"cos and sin carry a factor of {q.factor:.9g} on queries and {k.factor:.9g} on keys"
        on_keys = abs(q.factor - 1) <= abs(k.factor - 1)
        word = f"factor on the keys: {ratio:.6g}" if on_keys else f"factor on the queries: {1 / ratio:.6g}"
        return Disagreement(word, says)
    times = k.seen.factor / k.seen.trained
    if abs(times - 1) > EVEN and abs(times - q.seen.factor / q.seen.trained) > EVEN and not _even_scale(site, q, k):
        return Disagreement(
            f"factor on the keys: {times:.6g}", f"keys are multiplied by {times:.9g} beside the rotation"
        )
    return None


def of_more_axes(one: Sighting, other: Sighting) -> Sighting | None:
    """That of more axes, where both turn each pair alike, as words with one coordinate do; None where they do not."""
    few, many = sorted((one, other), key=lambda s: s.spec.axes.count)
    mine, theirs = (s.spec.inv_freq() for s in (few, many))
    same = (few.spec.layout, few.spec.reverse) == (many.spec.layout, many.spec.reverse)
    if few.spec == many.spec or (few.spec.axes.count == 1 and same and torch.allclose(mine, theirs, rtol=EVEN, atol=0)):
        return many
    return None
