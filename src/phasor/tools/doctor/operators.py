"""The examination by the eye: what each attention is seen to do to its q and k, beside the config and beside itself.

It knows no names of modules and functions. So it shows what the other examinations do not see: types whose config no
row reads, modules without a config, and factors inside a function that rotates.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ... import eye
from ...eye.call import Call
from ...eye.experiments import Look, at_length, lengths_in, look, tokens_of
from ...eye.sites import Site
from ...eye.spec import NoSpec, measured
from ...rotary.spec import RotarySpec
from ...support.findings import Difference, span
from .against_config.causes import way_out
from .check_ways import plan_of, within_of
from .deviation import Deviation
from .expected import Reference
from .observation import Observation
from .operator_faults import carries, counts, fault_of
from .report import ROTATION, Check
from .static import ACROSS, beside_plan

OPERATOR = "operator on q and k"
FAR = 64  # a position that a model without a declared length takes
STATE = "same operator after a longer call"
COUNTED = "positions given = positions counted"
LAYERS = "layers of one kind"
TURNED = 1e-4  # radians: roundings of angles that are one


def check_operators(observed: Observation, before: Sequence[Check]) -> Iterable[Check]:
    """Of a model with a config: the attentions that no text reaches, those of a picture beside it."""
    seen = observed.watched
    if isinstance(seen, str):
        what = ROTATION if observed.unread else OPERATOR
        return [Check(what=what, against="itself", verdict="not shown", reason=seen, needed=observed.unread)]
    if observed.unread:
        return of_unread(seen)
    reached = observed.plain.sites if seen.turning else ()  # of these more is told, or their tables are
    told = {row.where for row in before if row.what == ROTATION} | {site.where for site in reached}
    spec_is_wrong = any(row.verdict == "wrong" and row.against == "spec" for row in before)
    checks = [_of_known(observed, site) for site in seen.turning if site.where not in told]
    return [c for c in checks if not (c.verdict == "wrong" and c.against == "spec" and spec_is_wrong)]


def of_unread(seen: eye.Observation) -> list[Check]:
    """Of a model of which no config says what it must do: against itself alone, and needed for any verdict."""
    sites = [site for site in seen.sites if site.turning or _moves(site)]
    if not sites:
        says = f"nothing rotates: {seen.instead.describe() or '; '.join(seen.missing) or 'no attention was found'}"
        return [Check(what=ROTATION, against="itself", verdict="not shown", reason=says)]
    modules = (seen.model.get_submodule(site.where) for site in sites)
    checks = [_named(seen, s, _judged(s, module, (), 1.0, ROTATION)) for s, module in zip(sites, modules, strict=True)]
    assert seen.call is not None
    return [*checks, *_layers(seen), *_elsewhere(seen), *_after_longer(seen, seen.call), *_counted(seen, seen.call)]


def _of_known(observed: Observation, site: Site) -> Check:
    """Beside the config too, where its tokens are counted; what else a coordinate is no config says."""
    plan = plan_of(observed, site.where)
    specs = [] if isinstance(plan, str) else plan.specs
    factor = 1.0 if isinstance(plan, str) else plan.model.softmax_factor
    check = _judged(site, observed.model.get_submodule(site.where), specs, factor, OPERATOR)
    if check.verdict != "right" or isinstance(plan, str) or not specs:
        return check
    sides = [Reference(side) for side in (site.q, site.k) if side.turns and side.operator is not None]
    trained = any(spec.learned or spec.second is not None for spec in specs)
    found = None if trained or len(sides) < 2 else beside_plan(site, sides, plan, within_of(observed.model))
    if len(sides) == 2 and not trained and found is None:
        return check
    try:
        seen = measured(site.q if site.q.turns else site.k)
        if found and counts(seen) and not (found.cause == "attention factor" and carries(seen, specs)):
            return _wrong(check, found)
    except NoSpec as reason:
        return replace(check, verdict="not shown", reason=str(reason))
    return check


def _judged(site: Site, module: nn.Module, specs: Sequence[RotarySpec], softmax: float, what: str) -> Check:
    blank = Check(where=site.where, what=what, against="spec" if specs else "itself", verdict="not shown")
    if site.q.turns != site.k.turns and {"q", "k"} & set(site.turning):
        return _one_side(blank, site)
    two_angles = any(spec.second is not None for spec in specs)
    fault = None if two_angles else fault_of(site, module, softmax, bool(specs))
    if fault is not None:
        return _wrong(blank, fault)
    if site.q.turns and site.q.seen.norms != site.k.seen.norms:
        return replace(blank, reason="more stands between the rotation and the product on one of q and k")
    if unseen := next((side.seen.missing for side in (site.q, site.k) if side.seen.missing), ""):
        return replace(blank, reason=unseen)
    return replace(blank, verdict="right")


def _wrong(blank: Check, fault: Deviation) -> Check:
    apart = None if fault.pair is None else Difference(pair=fault.pair)
    way = way_out(fault.cause)
    if fault.cause.startswith("factor on"):
        way = "take the factor out of the code that rotates, or put it into the scale of the softmax"
    return replace(blank, verdict="wrong", cause=fault.cause, reason=fault.says, way_out=way, difference=apart)


def _one_side(blank: Check, site: Site) -> Check:
    turning, other = (site.q, site.k) if site.q.turns else (site.k, site.q)
    says = f"{turning.name} turns and {other.name} does not"
    if other.seen.missing or not other.seen.fixed:
        return replace(blank, reason=f"{says}: {other.seen.missing}")
    if ACROSS.search(site.where) or blank.what == OPERATOR:
        return replace(blank, reason=f"{says}, which may be so where keys are those of another text")
    return _wrong(blank, Deviation("not rotated", says))


def _moves(site: Site) -> str:
    """Why it is not known whether an attention turns; empty where it stands still."""
    return next((s.seen.missing for s in (site.q, site.k) if not s.seen.fixed and s.seen.missing), "")


def _named(seen: eye.Observation, site: Site, check: Check) -> Check:
    """With what the attention turns by, in words; not shown where that could not be said."""
    check = replace(check, needed=True)
    if check.verdict != "right":
        return check
    path, index = site.layers
    part = seen.parts.get(path)
    if part is None:
        said = [s for s in seen.missing if s.startswith((site.where, path or site.where))] or seen.missing
        return replace(check, verdict="not shown", reason=next((s.partition(": ")[2] for s in said), "no spec says it"))
    spec = part.layers[index] if index < len(part.layers) else None
    return replace(check, reason="" if spec is None else f"observed: {spec.describe()}")


def _layers(seen: eye.Observation) -> Iterator[Check]:
    """Layers that turn in several ways: wrong among layers that the config calls alike, else for a person to tell."""
    for path, part in seen.parts.items():
        kinds = _kinds(seen.model, len(part.layers))
        for kind in dict.fromkeys(kinds):
            ways: dict[Any, list[int]] = {}
            for i, spec in enumerate(part.layers):
                if spec is not None and kinds[i] == kind:
                    ways.setdefault(spec, []).append(i)
            if len(ways) > 1:
                yield _several(path, kind, ways)


def _elsewhere(seen: eye.Observation) -> Iterator[Check]:
    """Layers of one spec and kind whose tokens stand otherwise to one another than in the first of them."""
    first: dict[Any, Site] = {}
    for site in seen.turning:
        path, index = site.layers
        part = seen.parts.get(path)
        if part is None or index >= len(part.layers) or (spec := part.layers[index]) is None:
            continue
        kind = _kinds(seen.model, len(part.layers))[index]
        if _apart(site, other := first.setdefault((path, spec, kind, site.tokens), site)):
            says = f"its tokens stand elsewhere than in {other.where}, and nothing says that they are of two kinds"
            yield Check(where=site.where, what=LAYERS, against="itself", verdict="not shown", reason=says, needed=True)


def _several(path: str, kind: str, ways: Mapping[RotarySpec, list[int]]) -> Check:
    fewest = min(ways, key=lambda spec: len(ways[spec]))
    most = max(ways, key=lambda spec: len(ways[spec]))
    where = span([f"{path}.{i}." for i in ways[fewest]]).rstrip(".")
    says = f"it turns in {fewest.describe()}; {len(ways[most])} others in {most.describe()}"
    check = Check(where=where, what=LAYERS, against="itself", verdict="not shown", needed=True)
    if not kind:
        return replace(check, reason=f"{says}; nothing says that they are of two kinds")
    way = "rotate all layers of a kind alike, or say in layer_types that they are of another"
    return replace(check, verdict="wrong", cause="one layer otherwise", reason=f"{says}, all {kind}", way_out=way)


def _kinds(model: nn.Module, count: int) -> Sequence[str]:
    """The kind of each layer as the config names it; empty words where it names none."""
    config: Any = getattr(model, "config", None)
    config = config.get_text_config() if hasattr(config, "get_text_config") else config
    types = getattr(config, "layer_types", None) or ()
    return types if len(types) == count else ("",) * count


def _after_longer(seen: eye.Observation, call: Call) -> Iterator[Check]:
    """Whether what was seen is seen again after a call with a token far away: no state stays."""
    if not call.takes_positions or not seen.turning:
        return
    config: Any = getattr(seen.model, "config", None)
    told = lengths_in(config.to_dict()) if hasattr(config, "to_dict") else []
    longest = told[-1] if told else FAR
    looks = (look(call, at_length(call, before)) for before in (longest + 1, longest))  # a table may end there
    after = next((one for one in looks if not one.why_not), None)
    check = Check(what=STATE, against="itself", verdict="not shown")
    if after is None:
        yield replace(check, reason="it could not be called again")
    elif changed := [site.where for site in seen.turning if _other(site, after, exactly=True)]:
        says = "q and k turn otherwise than before a longer call, whose state stays"
        way = "choose the frequencies anew in every call, or fix the length"
        cause = "state of a longer call"
        yield replace(check, where=span(changed), verdict="wrong", cause=cause, reason=says, way_out=way)
    else:
        yield replace(check, verdict="right")


def _counted(seen: eye.Observation, call: Call) -> Iterator[Check]:
    """Positions from 0 that are given turn as those that are counted, and others turn otherwise."""
    if not call.takes_positions:
        return
    check = Check(what=COUNTED, against="itself", verdict="right")
    near, far = look(at_length(call, tokens_of(call))), look(at_length(call, FAR))
    if near.why_not or far.why_not:
        yield replace(check, verdict="not shown", reason=near.why_not or far.why_not)
    elif other := [site.where for site in seen.turning if _other(site, near)]:
        says = "positions from 0 that are given turn otherwise than those that the model counts"
        yield replace(
            check, where=span(other), verdict="wrong", cause="positions", reason=says, way_out=way_out("positions")
        )
    elif not any(_other(site, far) for site in seen.turning):
        says = f"q and k turn alike whatever {call.takes_positions} says: positions that are given are not used"
        yield replace(check, verdict="not shown", reason=says)
    else:
        yield check


def _other(site: Site, found: Look, exactly: bool = False) -> bool:
    """Whether a site turns otherwise in another call, all positions moved aside; not where it is not seen there."""
    return _apart(site, found.like(site), exactly)


def _apart(site: Site, there: Site | None, exactly: bool = False) -> bool:
    """Whether a site turns otherwise than another; ``exactly``: to the bit, and where all tokens stand elsewhere."""
    for mine, theirs in zip(site.sides, there.sides if there is not None else (), strict=False):
        if mine.turns and theirs.turns and mine.operator is not None and theirs.operator is not None:
            a, b = mine.operator.angles, theirs.operator.angles
            if a.shape != b.shape:
                return False
            apart = a - b if exactly else (a - a[..., :1]) - (b - b[..., :1])
            return bool(torch.sin(apart / 2).abs().max() > (0.0 if exactly else TURNED))
    return False
