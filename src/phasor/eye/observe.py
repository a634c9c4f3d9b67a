"""`observe`: a model is run a few times on a few tokens; what rotates its queries and keys is read off the tapes."""

import contextlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from ..rotary.model_rotary import ModelRotary
from ..rotary.spec import RotarySpec
from ..rotary.temperature import Temperature
from .arithmetic import tables_of
from .call import Call, call_of
from .experiments import (
    FAR,
    Look,
    at_axes,
    at_length,
    at_positions,
    ends,
    in_half_precision,
    lengths_in,
    look,
    spread,
    tokens_of,
)
from .frequencies import Frequencies
from .inputs import made_up
from .observation import Fact, Observation, places
from .scale import logit_scale, softmax_factor
from .sites import Side, Site, multiplied_by_positions, sites_of
from .spec import EVEN, NoSpec, Sighting, measured, sighting
from .temperature import factors, temperature, varies

MOST_LOOKS = 4  # at lengths that are named only after others were seen


def observe(model: nn.Module, inputs: Any = None) -> Observation:
    """What rotates the queries and keys of a model, seen on forward passes over a few tokens.

    No name, no config and no row is needed: each attention is found where queries meet keys, and the stretch before it
    whose Jacobian consists of plane rotations is read (`Operator`): pairs of channels, layout, angles, factors,
    frequencies to the bit where the model holds them. A few more calls show what changes with the length, which axis
    turns which pair, and where tables are rounded. The numbers of the model's config, if it has one, are tried as names
    (`phasor.scaling`), and nothing is named that does not give the bits that were seen.

    ``inputs``: what the model takes, a dictionary of arguments, a tuple or a tensor; by default a few tokens are made
    up. The model is left as it was, to the bit. No gradients are needed, and no code but the model's own is run.

    Raises ``ValueError`` for what is no torch module, for a model without values (on the meta device), and for one that
    cannot be run on the inputs.

    >>> from torch import nn
    >>> print(observe(nn.Sequential(nn.Linear(4, 4))))
    Sequential: 0 of 0 attentions rotate: observed
    not shown: no attention was found
    """
    inner = _inner(model)
    call = made_up(inner) if inputs is None else call_of(inner, inputs)
    sites = sites_of(call.tape())
    return _Watching(inner, call, sites).observation()


def _inner(model: Any) -> nn.Module:
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch module, got {type(model).__name__}")
    inner = getattr(model, "_orig_mod", model)  # of torch.compile
    if any(p.is_meta for p in inner.parameters()):
        raise ValueError(
            f"model must have values to be run, and this {type(inner).__name__} is on the meta device; "
            "read its config (phasor.read_config), or load it"
        )
    return inner


@dataclass
class _Watching:
    model: nn.Module
    call: Call
    sites: list[Site]
    facts: list[Fact] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        config = getattr(self.model, "config", None)
        told = getattr(config, "to_dict", None)
        self.numbers: dict[str, Any] = told() if callable(told) else {}
        self.lengths: dict[int, Look] = {}
        self.axes: tuple[int, Look] | None = None
        self.far: Look | None = None
        self.half = Look({}, "not looked at")
        self._sightings: dict[Any, Sighting | str] = {}

    def observation(self) -> Observation:
        if not self.sites:
            self.missing.append("no attention was found")
        if any(site.turning for site in self.sites):
            self._look_around()
        parts = {path: part for path, group in self._groups().items() if (part := self._part(path, group)) is not None}
        self._note_scales()
        for reason, sites in self._not_shown().items():
            self.missing.append(f"{places(sites)}: {reason}")
        nothing = bool(self.sites) and self._nothing_turns()
        return Observation(
            type(self.model).__name__,
            self.model,
            tuple(self.sites),
            parts,
            tuple(self.facts),
            tuple(dict.fromkeys(self.missing)),
            nothing,
        )

    def _nothing_turns(self) -> bool:
        """Whether no attention rotates: nothing multiplies by positions, not even before the projections."""
        operators = [side.operator for site in self.sites for side in site.sides if side.operator is not None]
        if any(operator.pairs for operator in operators):
            return False
        tape = self.sites[0].q.tape
        tokens = {tape.values[site.attention.q].shape[-2] for site in self.sites} | {tokens_of(self.call)}
        if any(operation for count in tokens for operation in multiplied_by_positions(tape, count)):
            self.missing.append("no attention was seen to turn, but data is multiplied by what differs between tokens")
            return False
        return True

    def _note_scales(self) -> None:
        """Where scores are divided by another number than the root of the width of a head."""
        found: dict[float, list[Site]] = {}
        for site in self.sites:
            if site.q.operator is not None and site.turning:
                scale = logit_scale(site) * math.sqrt(site.q.operator.channels)
                found.setdefault(round(scale, 6), []).append(site)
        for scale, sites in found.items():
            if abs(scale - 1) > EVEN:
                self.facts.append(Fact("softmax scale", f"{places(sites)}: {scale:.6g} / sqrt(head_dim)"))

    def _look_around(self) -> None:
        """The calls beside the first one."""
        self.half = in_half_precision(self.call)
        if self.half.why_not:
            self.missing.append("where tables are rounded in half precision")
        if not self.call.takes_positions:
            self.missing.append("what changes with the length: the model takes no positions")
            return
        known = lengths_in(self.numbers) or [4096]
        for length in sorted({known[0], known[0] + 1}):
            self._look_at(length)
        for count, found in at_axes(self.call, known[0]):
            if any(_axes(site) > 1 for site in found.sites.values()):
                self.axes = count, found
                break
        after = look(self.call, at_length(self.call, known[0] + 1))
        if changed := [s for s in self.sites if s.turning and _changed(s, after.like(s))]:
            self.facts.append(Fact("after a longer call", f"{places(changed)} turn otherwise than before it"))

    def _look_at(self, length: int) -> None:
        if length not in self.lengths:
            self.lengths[length] = look(at_length(self.call, length))

    def _groups(self) -> dict[str, list[Site]]:
        """The sites of each list of layers; what stands inside another attention (an indexer) by itself."""
        groups: dict[str, list[Site]] = {}
        paths = {site.where for site in self.sites}
        for site in self.sites:
            path, index = site.layers
            inside = [other for other in paths if site.where.startswith(f"{other}.")]
            name = site.where[len(f"{path}.{index}.".lstrip(".")) :] if inside else ""
            groups.setdefault(f"{path}.*.{name}" if name else path, []).append(site)
        return groups

    def _not_shown(self) -> dict[str, list[Site]]:
        reasons: dict[str, list[Site]] = {}
        for site in self.sites:
            for side in (site.q, site.k, site.v):
                if side.seen.missing:
                    reasons.setdefault(f"{side.name}: {side.seen.missing}", []).append(site)
        return reasons

    def _part(self, path: str, group: list[Site]) -> ModelRotary | None:
        """The encoding of one list of layers; None where nothing in it could be described."""
        seen: dict[int, Sighting | None] = {}
        for site in group:
            index = site.layers[1]
            one = self._site(site)
            if isinstance(one, str):
                self.missing.append(f"{site.where}: {one}")
                return None
            known = seen.get(index)
            if one is not None and known is not None and known.spec != one.spec:
                self.missing.append(f"{site.where}: it rotates otherwise than another attention of its layer")
                return None
            seen[index] = one if one is not None else known
        turning = [s for s in seen.values() if s is not None]
        if not turning:
            return None
        return self._rotary(path, group, seen)

    def _rotary(self, path: str, group: list[Site], seen: Mapping[int, Sighting | None]) -> ModelRotary:
        count = max(self._length_of(path), max(seen) + 1)
        first = next(s for s in seen.values() if s is not None)
        site = next(s for s in group if s.turning)
        temperatures = [self._temperature([s for s in group if s.layers[1] == i]) for i in range(count)]
        specs = [None if (one := seen.get(i)) is None else one.spec for i in range(count)]
        targets = tuple(dict.fromkeys(name for s in group for name in s.turning))
        lengths = lengths_in(self.numbers)
        own = {"float64" if s is not None and s.angles == "float64" else "float32" for s in specs if s is not None}
        return ModelRotary(
            model_type=str(self.numbers.get("model_type") or type(self.model).__name__),
            layers=tuple(specs),
            layer_types=("attention",) * count,
            num_heads=_heads(site.q if site.q.turns else site.k),
            num_kv_heads=_own_heads(site),
            max_position=lengths[-1] if lengths else None,
            part="",
            sources={"layers": "observed"},
            softmax_factor=softmax_factor(site, first.spec, self.numbers),
            temperatures=tuple(temperatures) if any(temperatures) else (),
            targets=targets,
            prefix_tokens=first.before,
            suffix_tokens=first.after,
            heads=first.heads,
            own_angles="float64" if own == {"float64"} else "float32",
            notes=tuple(dict.fromkeys(f"not seen: {word}" for one in seen.values() if one for word in one.named.open)),
        )

    def _temperature(self, sites: list[Site]) -> Temperature | None:
        """What lengthens the queries of one layer farther away; seen at lengths, and named by one more call."""
        found = [s for s in sites if any((there := each.like(s)) and varies(there) for each in self.lengths.values())]
        if not found:
            return None
        positions = spread(tokens_of(self.call), FAR)
        if self.far is None:
            self.far = look(at_positions(self.call, positions))
        seen = [
            (at, by_token)
            for at, each in (*((ends(self.call, n), each) for n, each in self.lengths.items()), (positions, self.far))
            if (there := each.like(found[0])) is not None and (by_token := factors(there)) is not None
        ]
        scheme = temperature(seen, self.numbers)
        if scheme is None:
            self.missing.append(f"{places(sites)}: what multiplies its queries more the farther away they are")
        return scheme

    def _length_of(self, path: str) -> int:
        try:
            return len(self.model.get_submodule(path))  # type: ignore[arg-type]
        except (AttributeError, TypeError):
            return 0

    def _site(self, site: Site) -> Sighting | str | None:
        """What one attention does: None where nothing turns, or why one spec does not say it."""
        if not site.turning:
            return next(
                (f"{s.name}: {s.seen.missing}" for s in (site.q, site.k) if s.seen.missing and not s.seen.fixed), None
            )
        if site.q.turns != site.k.turns:
            turning, other = (site.q, site.k) if site.q.turns else (site.k, site.q)
            return f"{turning.name} turns and {other.name} does not{f' ({why})' if (why := other.seen.missing) else ''}"
        if apart := _differ(site):
            return apart
        side = site.q if site.q.turns else site.v
        operator = side.operator
        assert operator is not None
        key = (operator.pairs, operator.inputs, operator.factor, operator.cos.numpy().tobytes())
        if key not in self._sightings:
            self._sightings[key] = self._named(site, side)
        return self._sightings[key]

    def _named(self, site: Site, side: Side) -> Sighting | str:
        """What one side does, named with all that was seen of it in other calls."""
        if self.axes is not None and (other := self.axes[1].like(site)) is not None:
            side = _same_side(other, side.name)
        elif isinstance(found := side.frequencies, Frequencies) and not found.exact:  # measured better farther away
            far = [there for look in self.lengths.values() if (there := look.like(site)) is not None]
            side = _same_side((far or [site])[0], side.name)
        try:
            seen = measured(side)
        except NoSpec as reason:
            return str(reason)
        if (why := _uncounted(site)) and not self.axes:
            return why
        one = sighting(seen, self.numbers, self._by_length(site, side))
        for _ in range(MOST_LOOKS if self.call.takes_positions else 0):
            new = [length for length in one.named.look_at if length not in self.lengths][:1]
            if not new:
                break
            self._look_at(new[0])
            one = sighting(seen, self.numbers, self._by_length(site, side))
        spec = self._with_tables(site, side, one.spec)
        return replace(one, spec=spec)

    def _by_length(self, site: Site, side: Side) -> dict[int, tuple[tuple[float, ...], float]]:
        """Frequencies in the order of the layout, and the factor, at each length that was looked at."""
        seen = {}
        for length, found in self.lengths.items():
            other = found.like(site)
            if other is not None:
                with contextlib.suppress(NoSpec):
                    there = measured(_same_side(other, side.name))
                    seen[length] = (there.values, there.factor)
        return seen

    def _with_tables(self, site: Site, side: Side, spec: RotarySpec) -> RotarySpec:
        other = self.half.like(site)
        operator = None if other is None else _same_side(other, side.name).operator
        tables = None if other is None or operator is None else tables_of(operator_tape(other), operator)
        return spec if tables is None else spec.replace(tables=tables)


def operator_tape(site: Site) -> Any:
    return site.q.tape


def _same_side(site: Site, name: str) -> Side:
    return next(side for side in site.sides if side.name == name)


def _differ(site: Site) -> str:
    """What keys are seen to do otherwise than queries, in words; empty where one spec says both."""
    if not (site.q.turns and site.k.turns):
        return ""
    try:
        q, k = measured(site.q), measured(site.k)
    except NoSpec as reason:
        return str(reason)
    if q.place.layout != k.place.layout:
        return f"queries turn in {q.place.layout.describe()}, keys in {k.place.layout.describe()}"
    if q.values != k.values or q.axis != k.axis:
        return "queries and keys turn by different frequencies"
    if q.reverse != k.reverse:
        return "queries and keys turn in opposite directions"
    if abs(q.factor / k.factor - 1) > EVEN:
        return f"cos and sin carry a factor of {q.factor:.9g} on queries and {k.factor:.9g} on keys"
    if abs(k.seen.factor - 1) > EVEN and abs(k.seen.factor - q.seen.factor) > EVEN:
        return f"keys are multiplied by {k.seen.factor:.9g} beside the rotation"
    mine, theirs = (torch.stack(m.found.coordinates) for m in (q, k))
    if mine.shape == theirs.shape and not torch.equal(mine, theirs):
        return "keys turn by other positions than queries"
    return ""


def _uncounted(site: Site) -> str:
    """Why the tokens of the first call are not counted one after the other; empty where they are, or have two axes."""
    found = site.q.frequencies if site.q.turns else site.v.frequencies
    if isinstance(found, str) or len(found.coordinates) > 1:
        return ""
    steps = found.coordinates[0].diff()
    if (steps == steps[:1]).all() and steps[0] > 0:
        return ""
    return f"its tokens are numbered {[round(x, 6) for x in found.coordinates[0].tolist()]}, not one after the other"


def _axes(site: Site) -> int:
    found = site.q.frequencies if site.q.turns else ""
    return 1 if isinstance(found, str) else len(found.coordinates)


def _changed(site: Site, after: Site | None) -> bool:
    if after is None:
        return False
    for mine, theirs in zip(site.sides, after.sides, strict=True):
        if mine.operator is not None and mine.turns:
            return theirs.operator is None or not torch.equal(mine.operator.cos, theirs.operator.cos)
    return False


def _heads(side: Side) -> int:
    assert side.operator is not None
    return int(side.operator.cos.shape[0])


def _own_heads(site: Site) -> int:
    """Heads of keys before they are repeated for several queries."""
    side = site.k if site.k.turns else site.q
    return _heads(side) if side.operator is None else side.operator.own_heads
