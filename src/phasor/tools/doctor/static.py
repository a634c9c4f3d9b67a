"""What one attention does in one plain call, beside the spec that its config gives: each pair of each head and token.

Which mistake gives what was seen is asked of golden's judging, by the rotated q and k that such an attention makes of
made-up heads.
"""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import torch
from torch import Tensor, nn

from ...eye.operator import TWO_ANGLES, Operator
from ...eye.scale import logit_scale, product_scale
from ...eye.sites import Side, Site
from ...eye.turning import TURNED_BEFORE
from ...models.rotary_of import SCALES_QUERIES
from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec
from .against_config.causes import worded
from .against_config.wrong_tables import UNKNOWN, judged_by, vectors_of
from .deviation import Deviation, around, deviation, effective
from .expected import Reference, rates_of

ACROSS = re.compile(r"cross|encoder_attn|encdec", re.IGNORECASE)  # keys of another text need not turn
EVEN, EVEN_HALF = 1e-3, 1e-2  # of a factor on scores
OF_SCORES = "scaling"  # what classes of transformers call the number that all their scores are multiplied by
SLOW = 1e-5  # radians: a pair that turns by less in the whole call may be taken for one that passes
# What golden may know by a better name.
GENERAL = {"layout", "rotary width", "frequencies", "sign", "positions", "half precision", "attention factor"}


@dataclass(frozen=True, eq=False)
class Planned:
    """What the config says of one attention. ``specs``: those that its layer may have; ``scales``: by which a fresh
    module of its class says that it multiplies scores; ``rotates``: whether its code is made to rotate."""

    model: ModelRotary
    specs: Sequence[RotarySpec]
    scales: Mapping[str, float]
    rotates: bool = True


def beside_plan(site: Site, sides: Sequence[Reference], planned: Planned, within: float) -> Deviation | None:
    """What is wrong, said with its side if it is one alone; by the first of the specs if by none it is right."""
    turning = [side.name for side in (site.q, site.k) if side.turns]
    if site.v.turns and "v" not in planned.model.targets:
        return _of(["v"], Deviation("values rotated", "values turn with the position, and must not"))
    doubled = [side.name for side in (site.q, site.k) if side.operator is not None and side.operator.second is not None]
    if doubled and planned.specs and all(spec.second is None for spec in planned.specs):
        return _of(doubled, Deviation("two angles in a pair", TWO_ANGLES))
    mixed = [side for side in (site.q, site.k) if side.seen.mixed]
    if mixed and planned.specs and not ACROSS.search(site.where):
        says = mixed[0].seen.missing
        cause = "rotated twice" if says == TURNED_BEFORE else "no rotation"
        return _of([side.name for side in mixed], Deviation(cause, says))
    if not planned.specs:
        says = "it turns, and by the config this layer has no positions"
        return _of(turning, Deviation("rotated", says)) if turning else _of_still(site, planned)
    if len(turning) < 2 and (ACROSS.search(site.where) or not (turning or planned.rotates)):
        return None
    if len(turning) < 2:
        return _not_turning(site, turning, planned.specs[0])
    first: Deviation | None = None
    for spec in planned.specs:
        if (found := _by(site, sides, spec, planned, within)) is None:
            return None
        first = first or found
    return first


def _of(names: Sequence[str], one: Deviation) -> Deviation:
    return one if len(names) > 1 else replace(one, says=f"{names[0]}: {one.says}")


def _of_still(site: Site, planned: Planned) -> Deviation | None:
    """Of scores whose q and k do not turn: their factor, where the class says one."""
    scale = logit_scale(site)
    if scale is None or OF_SCORES not in planned.scales or _is_of(abs(scale), planned.scales.values(), EVEN_HALF):
        return None
    says = f"scores are multiplied by {abs(scale):.6g}, and must be by {planned.scales[OF_SCORES]:.6g}"
    return Deviation("attention factor", says)


def _is_of(scale: float, said: Collection[float], within: float) -> bool:
    """Whether a number is one of those that are said, or of two of them: one on the queries, one on the scores."""
    both = (one * other for one, other in combinations(set(said), 2))
    return any(math.isclose(scale, one, rel_tol=within) for one in (*said, *both))


def _not_turning(site: Site, turning: Sequence[str], spec: RotarySpec) -> Deviation | None:
    still = [side for side in (site.q, site.k) if not side.turns]
    if not all(side.seen.fixed for side in still):
        return None  # not shown
    first = 0 if spec.attention_factor() != 1 else 1  # position 0 turns by nothing
    if not turning:
        return Deviation("not rotated", "neither turns with the position", first)
    return Deviation(f"{turning[0]} only", f"{still[0].name}: it is not rotated, and {turning[0]} is", first)


def _by(site: Site, sides: Sequence[Reference], spec: RotarySpec, planned: Planned, within: float) -> Deviation | None:
    keys = sides[-1].count if sides else 0
    later = [max(0, keys - side.count) for side in sides]  # queries are the last tokens, where there are more keys
    moved = {moved_by(side, spec, within) - start for side, start in zip(sides, later, strict=True)}
    by = [start + min(moved) if len(moved) == 1 else 0 for start in later]  # both alike: no score tells
    # queries of several experts come in the order of these, and keys are repeated in the same
    ordered = all(len(side.operator.sources) == 1 for side in sides if side.side.name == "q")
    alone = [(side.side.name, _of_side(side, spec, within, at, ordered)) for side, at in zip(sides, by, strict=True)]
    found = {name: one for name, one in alone if one is not None}
    if not found:
        return _of_scores(site, sides, spec, planned, EVEN if within < 1e-2 else EVEN_HALF)
    told = _by_golden(found, sides, spec, planned.model) if {one.cause for one in found.values()} & GENERAL else None
    if told is not None:
        return told
    name, first = next(iter(found.items()))
    if len(found) == 2 and len({one.cause for one in found.values()}) == 1:
        return first
    return _of([name], replace(first, cause=f"{first.cause} of {name}"))


def moved_by(reference: Reference, spec: RotarySpec, within: float) -> int:
    """By which number all positions are moved; 0 where they are not moved alike."""
    must = reference.by_spec(spec) if rates_of(spec, reference.pairs) is not None else None
    if must is None or must.shape[2] < 2:
        return 0
    first = effective(reference.known[None, ..., :1], around(must[0]), within)
    return max(0, int(first))


def _of_side(reference: Reference, spec: RotarySpec, within: float, by: int, ordered: bool) -> Deviation | None:
    """But for one factor on all, and the number ``by`` which all positions are moved.

    ``ordered``: heads must come in the order in which they were projected.
    """
    placed = reference.side.placed
    if rates_of(spec, reference.pairs) is None or placed is None:
        return _other_pairs(reference, spec)
    side_by_side = (layout.permuted or layout.interleaved for layout in (spec.layout, placed.layout))
    if spec.pairs > 1 and len(set(side_by_side)) > 1:  # the same pairs, of channels that were read otherwise
        return _other_pairs(reference, spec)
    if (missing := _missing(reference, spec)) is not None:
        return missing
    seen = reference.known[None]
    must = reference.by_spec(spec, by)
    if must is None:
        return None
    if reference.side.trained:
        seen, must = seen / seen.abs().clamp(min=1e-12), must / must.abs().clamp(min=1e-12)
    live = torch.ones(1, reference.count, dtype=torch.bool)
    found = deviation(seen, must, around(must[0]), live, within) or _of_passing(reference, spec, within)
    ordered = ordered and len(reference.operator.sources) == 1
    return found or (exchanged(reference.operator) if ordered else None) or rounded(reference.side)


def exchanged(operator: Operator) -> Deviation | None:
    if not (what := operator.exchanged):
        return None
    return Deviation(f"{what} exchanged", f"its {what} are in another order than they were projected in")


def rounded(side: Side) -> Deviation | None:
    """Rounding to half precision on the way of what is float32 before and after."""
    tape, operator = side.tape, side.operator
    if operator is None or tape.values[operator.target].dtype != torch.float32:
        return None
    made = (tape.values[i].dtype for o in operator.operations for i in o.outputs if i is not None)
    half = next((dtype for dtype in made if dtype.is_floating_point and dtype.itemsize < 4), None)
    if half is None:
        return None
    return Deviation("half precision", f"it is rounded to {half} between its projection and the product")


def _of_passing(reference: Reference, spec: RotarySpec, within: float) -> Deviation | None:
    """Channels that pass, longer or shorter than those that turn."""
    passed = reference.operator.passed
    if not reference.operator.passing or reference.side.trained:
        return None
    must = float(reference.known.abs().median()) / spec.attention_factor(reference.count)
    off = (passed.abs() - must).abs() > within * must
    if not bool(off.any()):
        return None
    says = f"channels that pass are {float((passed.abs() / must)[off].median()):.6g} times as long as they must be"
    return Deviation("attention factor", f"{says}, beside those that turn", int(off.any(1).any(0).nonzero()[0]))


def _other_pairs(reference: Reference, spec: RotarySpec) -> Deviation:
    count, placed, first = len(reference.pairs), reference.side.placed, _first(reference, spec)
    read = spec.layout.channels()
    alike = {b - a for a, b in reference.operator.inputs} == {read[spec.pairs] - read[0]}  # apart as they are read
    if count < spec.pairs and (alike or (placed is not None and placed.layout.interleaved == spec.interleaved)):
        return Deviation("rotary width", f"{2 * count} channels turn, and {spec.rotary_dim} must", first)
    if spec.permuted or (placed is not None and placed.layout.permuted):
        first = 0  # channels are moved
    elif {c for pair in reference.pairs for c in pair} == set(spec.layout.written().channels()[: 2 * spec.pairs]):
        first = 1
    return Deviation("layout", "its pairs are other channels than those of the config", first)


def _first(reference: Reference, spec: RotarySpec) -> int:
    """The first position at which what passes is not what turns: at 0 it has no factor."""
    return 0 if spec.attention_factor(reference.count) != 1 else 1


def _missing(reference: Reference, spec: RotarySpec) -> Deviation | None:
    """A pair that must turn, and whose channels pass."""
    written = spec.layout.written().channels()
    all_pairs = list(zip(written[: spec.pairs], written[spec.pairs : 2 * spec.pairs], strict=True))
    found = rates_of(spec, all_pairs)
    seen = {frozenset(pair) for pair in reference.pairs}
    rates = [] if found is None else found.tolist()
    turning = [i for i, rate in enumerate(rates) if abs(rate) * reference.count > SLOW]
    lost = [i for i in turning if frozenset(all_pairs[i]) not in seen]
    if not lost:
        return None
    if len(lost) == 1:
        return Deviation("not rotated", f"pair {lost[0]} of the {spec.pairs} does not turn", 1, lost[0])
    return Deviation(
        "rotary width", f"{len(lost)} of the {spec.pairs} pairs do not turn", _first(reference, spec), lost[0]
    )


def _by_golden(
    found: Mapping[str, Deviation], sides: Sequence[Reference], spec: RotarySpec, model: ModelRotary
) -> Deviation | None:
    """In golden's words, where one mistake explains all that differs; None where none does."""
    if spec.axes.count > 1:
        return None
    count = min(side.count for side in sides)
    vectors = vectors_of(model, spec, torch.arange(count))
    tensors = {}
    for side in sides:
        name = side.side.name
        out = _applied(side.operator, vectors.tensors[f"layer.{name}_in"].double())
        if out is None:
            return None
        tensors[f"model.float32.{name}_out"] = out.float().contiguous()
    finding = judged_by(vectors, tensors)
    if finding is None or finding.cause in (UNKNOWN, "value"):
        return None
    cause, says = worded(finding)
    names = list(found)
    cause = cause if len(names) > 1 else f"{cause} of {names[0]}"
    return _of(names, replace(min(found.values(), key=lambda one: one.token), cause=cause, says=says))


def _applied(operator: Operator, x: Tensor) -> Tensor | None:
    """What the first head's operator makes of heads ``[1, H, S, D]``; None where inputs are no channels of one head."""
    width = x.shape[-1]
    if operator.channels != width or operator.width != width:
        return None
    out = torch.zeros_like(x)
    count = x.shape[-2]
    for i, ((a, b), (p, q)) in enumerate(zip(operator.pairs, operator.inputs, strict=True)):
        cos, sin = operator.cos[0, i, :count], operator.sin[0, i, :count]
        out[..., a] = x[..., p] * cos - x[..., q] * sin
        out[..., b] = x[..., p] * sin + x[..., q] * cos
    for i, (a, p) in enumerate(zip(operator.passing, operator.passing_inputs, strict=True)):
        out[..., a] = x[..., p] * operator.passed[0, i, :count]
    return out


def _of_scores(
    site: Site, sides: Sequence[Reference], spec: RotarySpec, planned: Planned, within: float
) -> Deviation | None:
    """The factor by which scores are multiplied, by the softmax, q and k together, that no config and class says.

    Of queries with a temperature the first: it has none. Norms undo what was multiplied before, and what is trained
    has no size that could be told.
    """
    scale = product_scale(site)
    trained = any(side.side.trained for side in sides)
    if len(sides) < 2 or scale is None or (trained and OF_SCORES not in planned.scales):
        return None
    free = [bool(side.side.seen.norms) or side.side.trained for side in sides]
    lengths = [1.0 if f else float(s.known[..., 0].abs().median()) for f, s in zip(free, sides, strict=True)]
    product = abs(scale) * math.prod(lengths)
    factor = spec.attention_factor(sides[0].count) ** free.count(False)
    usual = sides[0].operator.channels ** -0.5 * planned.model.softmax_factor
    scales = planned.scales.values()
    halved = any(math.isclose(one * one, usual, rel_tol=within) for one in scales)  # on the queries and on the keys
    elsewhere = OF_SCORES not in planned.scales or planned.model.model_type in SCALES_QUERIES
    said = [*([usual] if halved or elsewhere else []), *scales]
    if _is_of(product / factor, said, within):
        return None
    says = f"scores are multiplied by {product:.6g}, and must be by {said[0] * factor:.6g}"
    says += f" (q by {lengths[0]:.4g}, k by {lengths[1]:.4g}, the softmax scale is {abs(scale):.6g})"
    return Deviation("attention factor", says)


def scales_of(module: nn.Module | None) -> dict[str, float]:
    return {n: v for n, v in vars(module).items() if "scal" in n and type(v) in (int, float)} if module else {}
