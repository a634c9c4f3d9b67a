"""What keys are seen to do otherwise than queries: both must turn alike, or a score says nothing of the distance."""

from dataclasses import dataclass

import torch

from .sites import Side, Site
from .spec import EVEN, Measured, NoSpec, measured
from .tape import upstream

MEASURED = 1e-5  # relative: roundings of angles


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
    try:
        q, k = measured(site.q), measured(site.k)
    except NoSpec as reason:
        return Disagreement("", str(reason))
    if q.place.layout != k.place.layout:
        says = f"queries turn in {q.place.layout.describe()}, keys in {k.place.layout.describe()}"
        return Disagreement("layout", says)
    if q.axis != k.axis or not _close(q, k):
        return Disagreement("frequencies", "queries and keys turn by different frequencies")
    if q.reverse != k.reverse:
        return Disagreement("sign", "queries and keys turn in opposite directions")
    if (factor := _factors(q, k)) is not None:
        return factor
    mine, theirs = (torch.stack(m.found.coordinates) for m in (q, k))
    if mine.shape == theirs.shape and not torch.equal(mine, theirs):
        return Disagreement("positions", "keys turn by other positions than queries")
    return None


def _close(q: Measured, k: Measured) -> bool:
    """Equal frequencies; those that were measured from angles, and do not stand on the tape, but for rounding."""
    if q.found.exact and k.found.exact:
        return q.values == k.values
    return all(abs(a - b) <= MEASURED * (0.1 + abs(b)) for a, b in zip(q.values, k.values, strict=True))


def _factors(q: Measured, k: Measured) -> Disagreement | None:
    ratio = k.factor / q.factor
    if abs(ratio - 1) > EVEN:
        says = f"cos and sin carry a factor of {q.factor:.9g} on queries and {k.factor:.9g} on keys"
        on_keys = abs(q.factor - 1) <= abs(k.factor - 1)
        word = f"factor on the keys: {ratio:.6g}" if on_keys else f"factor on the queries: {1 / ratio:.6g}"
        return Disagreement(word, says)
    if abs(k.seen.factor - 1) > EVEN and abs(k.seen.factor - q.seen.factor) > EVEN:
        says = f"keys are multiplied by {k.seen.factor:.9g} beside the rotation"
        return Disagreement(f"factor on the keys: {k.seen.factor:.6g}", says)
    return None


def trained(side: Side) -> bool:
    """Whether weights multiply on the way: a factor that training chose. Weights that are all 1 choose none."""
    seen, tape = side.operator, side.tape
    constants = {i for o in seen.operations for i in o.inputs if i not in tape.data} if seen is not None else set()
    chosen = (i for i in constants if any(w in tape.weights for w in upstream(tape, [i])))
    return any(bool((tape.values[i] != 1).any()) for i in chosen)
