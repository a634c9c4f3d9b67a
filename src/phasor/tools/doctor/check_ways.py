"""The examination of operators: what attentions do to q and k, beside the config, and in every way of calling.

Beside the config stands one plain call. Every other way of calling stands beside that call, at the same positions.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from ... import eye
from ...eye.scale import product_scale
from ...eye.sites import Site
from ...support.findings import Difference
from ..patch.reading import specs_of, specs_of_layer
from .against_config.causes import way_out
from .deviation import BEFORE, HALF, NOWHERE, SAME, Deviation, deviation, effective, places
from .expected import Reference
from .measurement import OF_ANGLES
from .observation import Observation
from .report import IN_CALLS, ROTATION, Check
from .running import Running
from .static import EVEN, Planned, beside_plan, exchanged, moved_by, rounded, scales_of
from .told_of_calls import RESTART, SWITCH, without_fault, wrong_in_calls
from .ways import MOST, Called, Turned

Key = tuple[str, int, str]
TABLES = re.compile(r"position_embeddings|rotary|rope|freqs|^cos$|^sin$", re.IGNORECASE)  # names of arguments
# What wrong tables make an attention do: where they are told, it is not told again.
OF_TABLES = (
    "frequencies",
    "base",
    "scaling",
    "YaRN's truncate",
    "half precision",
    "positions",
    "not rotated",
    "lost",
    "attention factor",
    "sign",
    "an angle",
    "angle of one pair",
    "pairs exchanged",
    "cos and sin",
    "two angles in a pair",
    "single values",
    "sections",
)


def check_ways(observed: Observation, before: Sequence[Check]) -> Iterator[Check]:
    """Of the model, or its decoder; and of the encoder beside it."""
    for part in observed.parts:
        yield from _of_part(observed, part, before)


def _of_part(observed: Observation, part: Running, before: Sequence[Check]) -> Iterator[Check]:
    """One check of each attention beside the config, then one of each way of calling, or one for each fault there."""
    beside = part.path != ""  # an encoder, which may have other positions than rotations
    plain = observed.plain_of(part) if beside else observed.plain
    blank = Check(where=part.path, what=f"{IN_CALLS} {plain.way.name}", against="itself", verdict="not shown")
    if plain.why_not:
        elsewhere = not isinstance(observed.watched, str) and bool(observed.watched.turning)
        yield replace(blank, reason=plain.why_not, needed=not elsewhere)
        return
    known, still = references(plain)
    if beside and not known:
        return
    within = within_of(observed.model)
    planned = {site.where: plan_of(observed, site.where) for site in plain.sites}
    checks: list[Check] = []
    if not observed.unread:
        needed = type(part) is Running  # else a decoder may attend to its encoder's keys beside its own
        checks = [_of_site(site, planned[site.where], known, within, needed) for site in plain.sites]
    told = [row.cause for row in before if row.verdict == "wrong" and row.what.startswith(("table", "frequencies"))]
    tables = any(cause not in ("unknown", "single values") for cause in told)
    yield from (c for c in checks if not (tables and c.verdict == "wrong" and c.cause.startswith(OF_TABLES)))
    if not beside:
        yield from _unseen_layers(observed, checks)
    if not told and not any(check.verdict == "wrong" for check in checks):  # else nothing says what is far away
        for key, reference in known.items():
            plan = planned[key[0]]
            specs = plan.specs if isinstance(plan, Planned) else ()
            if len(specs) == 1:
                tempered = isinstance(plan, Planned) and key[2] == "q" and bool(plan.model.temperatures)
                moved = moved_by(reference, specs[0], within)
                known[key] = replace(reference, spec=specs[0], moved=moved, tempered=tempered)
    scales = {(site.where, site.number): product_scale(site) for site in plain.sites}
    seen = [
        _Seen(called, known, still, HALF if _half_tables(called) else within, observed.model, scales)
        for called in observed.others(plain, part)
    ]
    told_of = {check.where for check in checks if check.verdict == "wrong"}  # what stands beside these is no measure
    found = [(one, why) for way in seen for one, why in way.wrong if one.where not in told_of]
    yield from wrong_in_calls(found, IN_CALLS)
    unseen = all(not way.wrong and way.not_wrong().verdict == "not shown" for way in seen)
    yield from (replace(way.not_wrong(part.path), needed=unseen and not beside) for way in seen if not way.wrong)


def within_of(model: nn.Module) -> float:
    return HALF if any(p.dtype in (torch.bfloat16, torch.float16) for p in model.parameters()) else SAME


def _half_tables(called: Called) -> bool:
    """Whether under autocast q or k are multiplied by tables in half precision: their own format rounds these."""
    for one in called.turned if called.way.autocast else ():
        operator, tape = one.side.operator, one.side.tape
        for operation in operator.operations if operator is not None else ():
            tables = (i for i in operation.inputs if operation.name == "mul" and i not in tape.data)
            if any(tape.is_float(i) and tape.values[i].dtype.itemsize < 4 for i in tables):
                return True
    return False


def _unseen_layers(observed: Observation, checks: Sequence[Check]) -> Iterator[Check]:
    """More layers that rotate by the config than attentions that were seen."""
    layers = max((len(m.layers) - m.layers.count(None) for m in observed.rotary), default=0)
    seen = len({check.where for check in checks})
    if seen < layers:
        says = f"{layers} layers rotate by the config, and {seen} attentions were seen"
        yield Check(what=ROTATION, against="spec", verdict="not shown", reason=says, needed=True)


def references(plain: Called) -> tuple[dict[Key, Reference], set[Key]]:
    """Of every side that turns in the plain call, and those that stand still there."""
    found, still = {}, set()
    for one in plain.turned:
        operator = one.side.operator
        if operator is None or not operator.turns or operator.second is not None:
            if one.side.seen.fixed:
                still.add(one.key)
        elif operator.cos.shape[-1] == one.positions.shape[1]:
            found[one.key] = Reference(one.side)
    return found, still


def given_tables(module: nn.Module) -> bool:
    """Whether a module has an argument for tables, or for what forms them."""
    return any(TABLES.search(name) for name in signature(module.forward).parameters)


def plan_of(observed: Observation, where: str) -> Planned | str:
    """What the config says of an attention, or, where no row reads it, what it was seen to do; or why nothing does."""
    if observed.unread:
        return _observed(observed.watched, where)
    module = observed.model.get_submodule(where)
    models, reason = observed.models_at(where)
    if reason or not models:
        return reason
    own = specs_of_layer(module, models)
    specs = [spec for spec in own if spec is not None] or ([] if own == [None] else specs_of(models))
    # where the config says a factor on the softmax scale, the class's own scale must have it
    scales = scales_of(observed.fresh(where)) if models[0].softmax_factor == 1 else {}
    called = any(site.path == where and site.kind in ("functions", "method") for site in observed.sites)
    around = [path.rpartition(".")[0] for path in observed.modules]
    beside = any(not path or where.startswith(f"{path}.") for path in around)  # a module that forms tables
    return Planned(models[0], specs, scales, called or beside or given_tables(module))


def _observed(watched: eye.Observation | str, where: str) -> Planned | str:
    if isinstance(watched, str):
        return "it was not observed"
    site = next((site for site in watched.sites if site.where == where), None)
    path, index = ("", 0) if site is None else site.layers
    part = watched.parts.get(path)
    spec = part.layers[index] if part is not None and index < len(part.layers) else None
    if part is None or spec is None:
        return "no spec says what it does"
    return Planned(part, [spec], {})


def _of_site(site: Site, planned: Planned | str, known: dict[Key, Reference], within: float, needed: bool) -> Check:
    check = Check(
        where=site.where, what=ROTATION, against="spec", verdict="not shown", difference=Difference(of="q and k")
    )
    if isinstance(planned, str):
        return replace(check, reason=planned)
    sides = [known[key] for name in "qk" if (key := (site.where, site.number, name)) in known]
    if (found := beside_plan(site, sides, planned, within)) is not None:
        check = replace(check, verdict="wrong", cause=found.cause, reason=found.says, way_out=way_out(found.cause))
        return replace(check, difference=check.apart(position=float(found.token), pair=found.pair))
    if not planned.specs:
        return replace(check, reason="no rotation in this layer")
    unseen = next((s.seen.missing for s in (site.q, site.k) if s.seen.missing), "")
    if len(sides) < 2 or unseen:
        return replace(check, reason=unseen or "its rotation is not seen", needed=needed)
    if any(spec.learned or spec.second is not None for spec in planned.specs):
        return replace(check, reason="nothing says by which trained frequencies it must turn")
    return replace(check, verdict="right")


class _Seen:
    """One way beside the plain call: what is ``wrong``, and of which sides it is ``unseen`` and why.

    All positions of a row may be moved by one number: no score tells.
    """

    def __init__(
        self,
        called: Called,
        known: dict[Key, Reference],
        still: set[Key],
        within: float,
        model: nn.Module,
        scales: Mapping[tuple[str, int], float | None],
    ) -> None:
        self.way, self.why_not, self.known = called.way, called.why_not, known
        self.within = within + OF_ANGLES * called.way.last
        self.wrong: list[tuple[Turned, Deviation]] = []
        self.unseen: dict[Key, str] = {}
        self._shifts: dict[tuple[str, int], Tensor] = {}
        looked: set[Key] = set()
        for one in called.turned:
            rows = tuple(range(called.way.rows))
            if one.key in still and one.side.turns:
                self.wrong.append((one, Deviation("rotated", "it turns, and in one plain call it does not", rows=rows)))
            if (says := _other_scale(one, scales)) and one.name == "q":
                every = tuple(range(one.positions.shape[1]))
                self.wrong.append((one, Deviation("attention factor", says, tokens=every, rows=rows)))
            if (reference := known.get(one.key)) is None:
                continue
            looked.add(one.key)
            why = self._beside(one, reference)
            if isinstance(why, Deviation):
                self.wrong.append((one, why))
            elif why:
                self.unseen.setdefault(one.key, why)
        for key in known.keys() - looked:
            self.unseen[key] = "it was not reached, or not in each of the calls"
        if called.way.given:
            self._leave_models_inside(model, {one.where for one in called.turned})

    def not_wrong(self, where: str = "") -> Check:
        """The check of a way without a fault: right only where each side that turns was compared."""
        blank = Check(where=where, what=f"{IN_CALLS} {self.way.name}", against="itself", verdict="not shown")
        if self.why_not or not self.known:
            return replace(blank, reason=self.why_not or "nothing turns in one call")
        found = without_fault(blank, [(key[0], why) for key, why in self.unseen.items()])
        return found if self.unseen else replace(found, difference=Difference(of="q and k"))

    def _beside(self, one: Turned, reference: Reference) -> Deviation | str:
        """How one side differs, or why that is not seen; empty where it does not."""
        way, operator = self.way, one.side.operator
        if one.side.seen.mixed and way.static and one.site.tokens[1] < one.positions.shape[1]:
            return "a static cache moves the keys of its window from place to place"
        if one.side.seen.mixed or (operator is not None and operator.second is not None):
            cause = "no rotation" if one.side.seen.mixed else "two angles in a pair"
            return Deviation(cause, one.side.seen.missing, rows=tuple(range(way.rows)))
        if operator is None and one.side.seen.fixed and not one.side.seen.missing:
            says, every = "nothing turns it, and in one plain call it turns", tuple(range(one.positions.shape[1]))
            return Deviation("not rotated", says, tokens=every, rows=tuple(range(way.rows)))
        if operator is None:
            return one.side.seen.missing or "nothing was seen of it"
        given, of_queries = one.positions.shape[1], one.side.name == "q"
        if operator.cos.shape[-1] > given and operator.cos.shape[-1] % given == 0:
            operator = operator.unfolded((-1, given), -1)  # queries of heads that share a key lie one after the other
        tokens = operator.cos.shape[-1]
        positions, live, longest = one.positions[:, -tokens:], one.live[:, -tokens:], one.longest[-tokens:]
        if positions.shape[1] != tokens:
            return "its keys are those of a cache of another size"
        far = int(positions.min()) > MOST
        if far and reference.tempered:
            return "what multiplies queries so far away is not known"
        heads, own = operator.cos.shape[0] / way.rows, reference.operator.cos.shape[0]
        if (heads != own or tokens != given) if of_queries else (heads % own and own % heads):
            return "its heads and tokens are not told apart"
        seen, passing = reference.of(operator, way.rows), reference.passing(operator, way.rows, live, self.within)
        if seen is None or passing is None:
            return self._placed(one, Deviation("layout", "other channels turn or pass than in one plain call"))
        if passing.any():
            where, those = (places(passing, axis) for axis in (1, 0))
            says = "channels that pass are longer or shorter than in one plain call"
            return self._placed(one, Deviation("attention factor", says, where[0], tokens=where, rows=those))
        site, moved = (one.where, one.number), positions
        if site in self._shifts:
            moved = positions + self._shifts[site][:, None]
        found = self._apart(one, seen, reference, moved, longest, live)
        if site not in self._shifts and not isinstance(found, str):
            by = _shift(seen, reference.others, positions, live, self.within) if found else positions[:, 0] * 0
            if by is None and far:  # moved where it counts tokens itself, and not where it is given positions
                by = positions[:, 0] * 0 - reference.moved
            if by is not None and (not way.given or bool((by == by[0]).all())):
                self._shifts[site], moved = by, positions + by[:, None]
                found = found and self._apart(one, seen, reference, moved, longest, live)
        if isinstance(found, str):
            return found
        if found is None and not reference.operator.exchanged:
            found = exchanged(operator)
        if found is None and not (way.autocast or rounded(reference.side)):
            found = rounded(one.side)
        if found is None:
            return ""
        if _restarts(one, seen, reference, self.within):
            found = replace(found, cause=RESTART, says=f"its calls count from 0 again; {found.says}")
        elif _of_the_other_regime(seen, reference, moved.clamp(min=-BEFORE), live, self.within):
            says = f"in a call of {int(longest.max())} tokens it has the frequencies of the other side of the switch"
            found = replace(found, cause=SWITCH, says=says)
        elif found.cause == "frequencies" and far:  # the positions of the plain call are far from here
            at = reference.place(seen[min(found.rows), 0, :, found.token], self.within)
            if at is not None:
                found = replace(found, cause="positions", says=f"token {found.token} is turned by position {at}")
        return self._placed(one, found)

    def _apart(
        self, one: Turned, seen: Tensor, reference: Reference, at: Tensor, longest: Tensor, live: Tensor
    ) -> Deviation | str | None:
        if (must := reference.at(at.clamp(min=-BEFORE), longest, seen.shape[1])) is None:
            return "nothing says what it must be there"
        found = deviation(seen, must, reference.others, live, self.within)
        if found is not None and seen.shape[1] == seen.shape[3]:  # as many heads as tokens: axes may be exchanged
            other = deviation(seen.transpose(1, 3), must, reference.others, live, self.within)
            found = found if other is not None else None
        kept = found is not None and seen.shape[3] < one.positions.shape[1]
        return None if kept and _kept(seen, reference, one.positions, self.within) else found

    def _placed(self, one: Turned, found: Deviation) -> Deviation:
        """With its tokens counted from the first of all calls: a window keeps the last ones."""
        operator = one.side.operator
        gone = 0 if operator is None else one.positions.shape[1] - operator.cos.shape[-1]
        return replace(found, token=found.token + gone, tokens=tuple(t + gone for t in found.tokens))

    def _leave_models_inside(self, model: nn.Module, reached: set[str]) -> None:
        """Nothing is wrong with a model inside, with a config of its own, that counts its tokens for itself."""
        wrong = {one.where for one, _ in self.wrong}
        following = {id(config_of(model, where)) for where in reached - wrong}
        alone = {where for where in wrong if following and id(config_of(model, where)) not in following}
        says = "a model inside this one, which is given no positions and counts its own tokens"
        self.unseen |= {one.key: says for one, _ in self.wrong if one.where in alone}
        self.wrong = [(one, why) for one, why in self.wrong if one.where not in alone]


def _other_scale(one: Turned, scales: Mapping[tuple[str, int], float | None]) -> str:
    """How the product of q and k is multiplied otherwise than in one plain call; empty where it is not."""
    must, scale = scales.get((one.where, one.number)), product_scale(one.site)
    if must is None or scale is None or math.isclose(scale, must, rel_tol=EVEN):
        return ""
    return f"the softmax scale is {scale:.6g}, and in one plain call {must:.6g}"


def _restarts(one: Turned, seen: Tensor, reference: Reference, within: float) -> bool:
    """Whether the tokens of each call after the first one are turned by positions from 0."""
    if one.call == 0:
        return False
    lengths = [piece.tokens.shape[1] for piece in one.way.pieces[: one.call + 1]]
    if one.name == "k" and seen.shape[-1] != sum(lengths):
        return False  # a window: the first ones are gone
    of_calls = seen.split(lengths, -1)[1:] if one.name == "k" else (seen,)
    return all(
        bool((effective(part, reference.others, within) == torch.arange(part.shape[-1])).all()) for part in of_calls
    )


def _kept(seen: Tensor, reference: Reference, given: Tensor, within: float) -> bool:
    """Whether keys are those of some of the tokens, each once and in order: what a cache of its own kind keeps."""
    at = effective(seen, reference.others, within)
    ordered = bool((at.diff(dim=-1) > 0).all() and (at[:, -1] == given[:, -1]).all())
    return ordered and all(set(row.tolist()) <= set(all_.tolist()) for row, all_ in zip(at, given, strict=True))


def _of_the_other_regime(seen: Tensor, reference: Reference, at: Tensor, live: Tensor, within: float) -> bool:
    """Whether an encoding with frequencies for short calls and others for long ones takes the wrong ones."""
    spec = reference.spec
    if spec is None or spec.scaling is None or not spec.scaling.two_regimes or not spec.scaling.trained_length:
        return False
    trained = spec.scaling.trained_length
    return any(
        (must := reference.at(at, torch.full_like(at[0], length), seen.shape[1])) is not None
        and deviation(seen, must, reference.others, live, within) is None
        for length in (trained, trained + 1)
    )


def _shift(seen: Tensor, others: Tensor, positions: Tensor, live: Tensor, within: float) -> Tensor | None:
    """By which number all positions of each row are moved, ``[rows]``; None where they are not."""
    at = effective(seen, others, within)
    if bool((at == NOWHERE)[live].any()):
        return None
    found = []
    for row, alive in zip(at - positions, live, strict=True):
        own = row[alive]
        if not len(own) or bool((own != own[0]).any()):
            return None
        found.append(own[0])
    return torch.stack(found)


def config_of(model: nn.Module, where: str) -> Any:
    """The config that a module was built from: that of the nearest module around it that has one."""
    parts = where.split(".")
    around = (model.get_submodule(".".join(parts[:i])) for i in range(len(parts) - 1, -1, -1))
    return next((m.config for m in around if hasattr(m, "config")), None)
