"""A model of pictures beside the class that its config names: where tokens stand, and which pairs turn by which axis.

The class of the diffusers that is installed is built small from the config, and observed in the same call. So what was
changed in the model, or ported otherwise, is seen, whatever its own code is called.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from ...eye import Observation
from ...eye.grid import CLOSE, by_axes, wrapped
from ...eye.layout import placed
from ...eye.operator import Operator
from ...eye.sites import Side, Site, sites_of
from ...eye.tiny.pictures import built, class_of, made_of, small
from ...eye.turned_by import name_of
from ...support.errors import first_line
from .against_config.causes import way_out
from .deviation import Deviation
from .report import ROTATION, Check

AGAINST_CLASS = "rotation of its class"
AS_ITS_CLASS = ("not rotated", "two angles in a pair")  # no faults where the class does the same
APART = 0.01  # of a step: coordinates that differ


class NotShown(Exception):
    """Why two operators were not compared, as a clause."""


def against_class(seen: Observation, before: Sequence[Check]) -> list[Check]:
    """The checks before, and one for each attention that turns, where the config names a class of diffusers.

    What would be a fault of one's own is none where the class does the same, and what no spec says is shown there.
    """
    beside = list(_checks(seen))
    alike = {check.where for check in beside if check.verdict == "right"}
    unread = (c for c in before if c.where in alike and c.what == ROTATION)
    told = {id(c) for c in unread if c.cause in AS_ITS_CLASS or c.verdict == "not shown"}
    return [*(c for c in before if id(c) not in told), *beside]


def _checks(seen: Observation) -> Iterator[Check]:
    config: Any = getattr(seen.model, "config", None)
    made = _class(seen.model, config) if isinstance(config, Mapping) else None
    if made is None:
        return
    blank = Check(what=AGAINST_CLASS, against="spec", verdict="not shown")
    try:
        own_angles = any(_own_angles(side.operator) for site in seen.turning for side in (site.q, site.k))
        model = built(lambda: made_of(made, small(config, all_heads=own_angles)))
        if own_angles:  # which may be weights
            _take_over(model, seen.model)
        assert seen.call is not None
        own = {(_first_layer(site), site.number): site for site in sites_of(replace(seen.call, model=model).tape())}
    except Exception as error:  # the class raises what it likes for a config that was changed
        yield replace(blank, reason=f"{made.__name__} could not be observed: {first_line(error)}")
        return
    for site in seen.turning:
        yield _beside(replace(blank, where=site.where), site, own.get((_first_layer(site), site.number)))


def _own_angles(seen: Operator | None) -> bool:
    """Whether heads turn by angles of their own."""
    return seen is not None and seen.turns and bool((seen.angles - seen.angles[:1]).abs().max() > CLOSE)


def _take_over(model: nn.Module, theirs: nn.Module) -> None:
    """The weights of another model that are as large."""
    known = dict(theirs.named_parameters())
    for name, own in model.named_parameters():
        if name in known and known[name].shape == own.shape:
            own.data.copy_(known[name].data)


def _class(model: nn.Module, config: Mapping[str, Any]) -> type[nn.Module] | None:
    try:
        return class_of("diffusers", config.get("_class_name", type(model).__name__))
    except ImportError:
        return None


def _first_layer(site: Site) -> str:
    return re.sub(r"\.\d+(?=\.|$)", ".0", site.where)


def _beside(check: Check, site: Site, own: Site | None) -> Check:
    if own is None:
        return replace(check, reason="its class has no attention there")
    try:
        for mine, theirs in ((site.q, own.q), (site.k, own.k)):
            if (fault := _fault(mine, theirs)) is not None:
                says = f"{mine.name}: {fault.says}"
                return replace(check, verdict="wrong", cause=fault.cause, reason=says, way_out=way_out(fault.cause))
    except NotShown as reason:
        return replace(check, reason=str(reason))
    return replace(check, verdict="right")


def _fault(mine: Side, theirs: Side) -> Deviation | None:
    """What a side does otherwise than that of its class; raises `NotShown`."""
    if mine.seen.fixed and theirs.seen.fixed and not (mine.turns or theirs.turns):
        return None
    if mine.operator is None or theirs.operator is None:
        raise NotShown(mine.seen.missing or theirs.seen.missing or f"no rotation of its {mine.name} was seen")
    seen, own = mine.operator, theirs.operator
    alone = _own_angles(seen) or _own_angles(own)
    if alone and seen.angles.shape[0] != own.angles.shape[0]:
        raise NotShown("its heads turn by angles of their own, of which the class has other numbers of heads")
    if seen.angles.shape[-1] != own.angles.shape[-1]:
        raise NotShown("its class has other numbers of tokens")
    turns = seen.of_pairs(own.pairs, own.inputs)
    if turns is None:
        return Deviation("layout", f"it turns {_layout(seen)}, and its class {_layout(own)}")
    heads = slice(None) if alone else slice(1)
    if bool((wrapped(turns[heads].angle() - own.angles[heads]).abs() <= CLOSE).all()):
        return None
    angles, known = turns[0].angle(), by_axes(own.angles, theirs.grids)
    if known is None:
        return Deviation("angles", "its tokens turn by other angles than those of its class")
    values, axis, coordinates = known
    found = [_coordinates(angles, values[0], [p for p, a in enumerate(axis) if a == n]) for n in range(max(axis) + 1)]
    if any(at is None for at in found):
        return Deviation("frequencies", "its pairs turn by other frequencies than those of its class")
    return _moved(
        [at for at in found if at is not None], coordinates, [name_of(at, theirs.grids) for at in coordinates]
    )


def _layout(seen: Operator) -> str:
    place = placed(seen)
    return f"the pairs {seen.pairs[:3]}…" if place is None else place.layout.describe()


def _coordinates(angles: Tensor, values: Tensor, pairs: Sequence[int]) -> Tensor | None:
    """Where tokens stand on the axis of these pairs, from the slowest pair on; None where no coordinate gives all."""
    at = torch.zeros(angles.shape[-1], dtype=torch.float64)
    for pair in sorted(pairs, key=lambda pair: abs(float(values[pair]))):
        at = at + wrapped(angles[pair] - values[pair] * at) / values[pair]
    away = wrapped(angles[list(pairs)] - values[list(pairs), None] * at)
    return at if bool((away.abs() <= CLOSE).all()) else None


def _moved(found: Sequence[Tensor], own: Sequence[Tensor], names: Sequence[str]) -> Deviation:
    """Axes that took each other's place, or tokens that stand elsewhere."""
    same = [[bool(((at - other).abs() <= APART).all()) for other in own] for at in found]
    for a, b in torch.combinations(torch.arange(len(own))).tolist():
        if same[a][b] and same[b][a]:
            return Deviation(
                "axes swapped", f"its {names[a]} turns the pairs of the {names[b]}, and the other way round"
            )
    said = []
    for name, at, other in zip(names, found, own, strict=True):
        away = at - other
        tokens = (away.abs() > APART).nonzero().flatten().tolist()
        if tokens:
            by = away[tokens]
            even = float(by.mean()) if bool(((by - by[0]).abs() <= APART).all()) else None
            how = f"{even:+.3g}" if even is not None else f"up to {float(by.abs().max()):.3g} away"
            said.append(f"tokens {tokens[0]}-{tokens[-1]}: {name} {how}")
    return Deviation("positions", f"they stand elsewhere than in its class: {'; '.join(said)}")
