"""`observe`: a model is run a few times on a few tokens; what rotates its queries and keys is read off the tapes."""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn

from ..rotary.model_rotary import ModelRotary
from ..rotary.spec import RotarySpec
from ..rotary.temperature import Temperature
from ..support.errors import first_line
from .agreement import beside_others, disagreement, of_more_axes, turns_as_rows_of
from .arithmetic import tables_of
from .call import Call, call_of
from .experiments import (
    FAR,
    Look,
    at_axes,
    at_length,
    at_positions,
    ends,
    heads_of,
    heads_of_side,
    in_half_precision,
    lengths_in,
    longest_in,
    look,
    positions_up_to,
    spread,
    tokens_of,
)
from .frequencies import Frequencies, counts_on
from .inputs import made_up
from .instead import Instead, instead
from .observation import Fact, Observation, places
from .scale import logit_scale, softmax_factor
from .sites import Side, Site, angles_of_data, multiplied_by_positions, sites_of
from .spec import EVEN, NoSpec, Sighting, measured, sighting
from .temperature import factors, temperature, varies
from .turned_by import axes_of
from .turning import BY_A_MATRIX

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

    >>> import torch
    >>> from torch import nn
    >>> class Own(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.words, self.qkv = nn.Embedding(9, 8), nn.Linear(8, 24)
    ...     def forward(self, ids, position_ids=None):
    ...         q, k, v = self.qkv(self.words(ids)).chunk(3, -1)
    ...         angles = torch.arange(ids.shape[1])[:, None] / 100.0 ** (torch.arange(0, 8, 2) / 8)
    ...         turn = torch.polar(torch.ones_like(angles), angles)
    ...         pairs = (torch.view_as_complex(torch.unflatten(x, -1, (4, 2)).contiguous()) for x in (q, k))
    ...         q, k = (torch.view_as_real(x * turn).flatten(-2) for x in pairs)
    ...         return nn.functional.scaled_dot_product_attention(q, k, v)
    >>> observe(Own()).rotary.layers[0].describe()
    'all 8 channels, interleaved, base 100, no scaling, one axis, exact angles'
    """
    inner = _inner(model)
    call = made_up(inner) if inputs is None else call_of(inner, inputs)
    tape = call.tape()
    watching = _Watching(inner, call, sites_of(tape))
    still = all(side.seen.fixed for site in watching.sites for side in (site.q, site.k))
    ended = tape.raised is None  # else what stands in its place may come later
    if ended and not any(site.turning for site in watching.sites):
        watching.instead = instead(tape, still)
        if said := watching.instead.describe():
            watching.facts.append(Fact("instead of a rotation", said))
    return watching.observation()


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
    instead: Instead = field(default_factory=Instead)

    def __post_init__(self) -> None:
        config = getattr(self.model, "config", None)
        told = getattr(config, "to_dict", None)
        own = config if isinstance(config, Mapping) else {}  # of diffusers
        self.numbers: dict[str, Any] = told() if callable(told) else dict(own)
        self.modules = {site.where for site in self.sites}
        self.lengths: dict[int, Look] = {}
        self.axes: tuple[int, Look] | None = None
        self.far: Look | None = None
        self.half = Look({}, "not looked at")
        self._sightings: dict[Any, Sighting | str] = {}

    def observation(self) -> Observation:
        if not self.sites:
            self.missing.append("no attention was found")
        elif (error := self.sites[0].q.tape.raised) is not None:
            self.missing.append(
                f"what follows: on made-up inputs it raised {type(error).__name__}: {first_line(error)}"
            )
        if any(site.turning for site in self.sites):
            self._look_around()
        parts = {path: part for path, group in self._groups().items() if (part := self._part(path, group)) is not None}
        self._note_scales()
        self.facts += (Fact("axes", f"{places(sites) or 'model'}: {words}") for words, sites in axes_of(self.sites))
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
            self.call,
            self.instead,
        )

    def _nothing_turns(self) -> bool:
        """Whether no attention rotates: nothing multiplies by positions, not even before the projections."""
        operators = [side.operator for site in self.sites for side in site.sides if side.operator is not None]
        if any(operator.pairs for operator in operators):
            return False
        tape = self.sites[0].q.tape
        if tape.raised is not None:  # what would have come later was not looked at
            return False
        if any(side.seen.missing == BY_A_MATRIX for site in self.sites for side in site.sides):
            return False
        counts = {site.tokens[0] for site in self.sites}
        if 1 in counts:
            return False
        if angles_of_data(tape) or any(
            operation for count in counts | {tokens_of(self.call)} for operation in multiplied_by_positions(tape, count)
        ):
            self.missing.append("no attention was seen to turn, but data is multiplied by what differs between tokens")
            return False
        return True

    def _note_scales(self) -> None:
        """Where scores are divided by another number than the root of the width of a head."""
        found: dict[float, list[Site]] = {}
        for site in self.sites:
            scale = logit_scale(site)
            if site.q.operator is not None and site.turning and scale is not None:
                found.setdefault(round(scale * math.sqrt(site.q.operator.channels), 6), []).append(site)
        for scale, sites in found.items():
            if abs(scale - 1) > EVEN:
                self.facts.append(Fact("softmax scale", f"{places(sites)}: {scale:.6g} / sqrt(head_dim)"))

    def _look_around(self) -> None:
        """The calls beside the first one."""
        self.half = in_half_precision(self.call, self.modules)
        if self.half.why_not:
            self.missing.append("where tables are rounded in half precision")
        if not self.call.takes_positions:
            self.missing.append("what changes with the length: the model takes no positions")
            return
        known = lengths_in(self.numbers) or [4096]
        for length in sorted({known[0], known[0] + 1}):
            self._look_at(length)
        for count, found in at_axes(self.call, known[0], self.modules):
            if any(_axes(site) > 1 for site in found.sites.values()):
                self.axes = count, found
                break
        after = look(self.call, at_length(self.call, known[0] + 1), self.modules)
        if changed := [s for s in self.sites if s.turning and _changed(s, after.like(s))]:
            self.facts.append(Fact("after a longer call", f"{places(changed)} turn otherwise than before it"))

    def _look_at(self, length: int) -> None:
        if length not in self.lengths:
            self.lengths[length] = look(at_length(self.call, length), among=self.modules)

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
                if side.seen.missing and not side.turns:
                    reasons.setdefault(f"{side.name}: {side.seen.missing}", []).append(site)
        return reasons

    def _part(self, path: str, group: list[Site]) -> ModelRotary | None:
        """The encoding of one list of layers; None where nothing in it could be described."""
        seen: dict[int, Sighting | None] = {}
        for site in group:
            index = site.layers[1]
            if beside_others(site):
                self.facts.append(Fact("queries alone", f"{site.where}: q turns, and keys of other tokens do not"))
                continue
            one = self._site(site)
            if isinstance(one, str):
                self.missing.append(f"{site.where}: {one}")
                if site.attention.v is None and any(s.turning and s.where == site.where for s in group):
                    continue  # what chooses blocks of tokens for the attention that turns
                return None
            known = seen.get(index)
            if one is not None and known is not None and (one := of_more_axes(known, one)) is None:
                self.missing.append(f"{site.where}: it rotates otherwise than another attention of its layer")
                return None
            seen[index] = one if one is not None else known
        if not any(seen.values()):
            return None
        if group[0].q.tape.raised is not None and (unseen := self._length_of(path) - len(seen)) > 0:
            self.missing.append(f"{path}: {unseen} of its layers, which were not reached")
            return None
        return self._rotary(path, group, seen)

    def _rotary(self, path: str, group: list[Site], seen: Mapping[int, Sighting | None]) -> ModelRotary:
        count = max(self._length_of(path), max(seen) + 1)
        first = next(s for s in seen.values() if s is not None)
        site = next(s for s in group if s.turning)
        heads = heads_of(site, self.call)
        temperatures = [self._temperature([s for s in group if s.layers[1] == i]) for i in range(count)]
        specs = [None if one is None else one.spec for one in self._of_layers(path, seen, count)]
        targets = tuple(dict.fromkeys(name for s in group for name in s.turning))
        own = {spec.angles for spec in specs if spec is not None}
        opens = [word for one in seen.values() if one for word in one.named.open]
        seen_model = ModelRotary(
            model_type=str(self.numbers.get("model_type") or type(self.model).__name__),
            layers=tuple(specs),
            layer_types=("attention",) * count,
            num_heads=heads,
            num_kv_heads=min(heads, heads_of_side(site.k if site.k.turns else site.q, self.call, own=True)),
            max_position=longest_in(self.numbers),
            part="",
            sources={"layers": "observed"},
            softmax_factor=softmax_factor(site, first.spec, self.numbers),
            temperatures=tuple(temperatures) if any(temperatures) else (),
            targets=targets,
            prefix_tokens=first.before,
            suffix_tokens=first.after,
            heads=first.heads,
            own_angles=own.pop() if len(own) == 1 else "float32",
            notes=(*self._unequal_heads(group), *dict.fromkeys(f"not seen: {word}" for word in opens)),
        )
        return seen_model.with_angles("exact")

    def _unequal_heads(self, group: list[Site]) -> list[str]:
        """A note where layers have unequal numbers of heads, of which a `ModelRotary` has one."""
        heads = [heads_of(s, self.call) for s in group if s.q.turns or s.k.turns]
        counts = list(dict.fromkeys(heads))
        return [f"its layers have {', '.join(map(str, counts))} query heads"] if len(counts) > 1 else []

    def _of_layers(self, path: str, seen: Mapping[int, Sighting | None], count: int) -> Iterator[Sighting | None]:
        """What each layer was seen to do; one that is the module of another layer does the same."""
        ran = {operation.module for operation in self.sites[0].q.tape.operations}
        layers = {i: self._module(f"{path}.{i}") for i in range(count)}
        for i, layer in layers.items():
            if i in seen or layer is None:
                yield seen.get(i)
                continue
            twin = next((j for j, other in layers.items() if other is layer), i)
            if twin == i and not any(name == f"{path}.{i}" or name.startswith(f"{path}.{i}.") for name in ran):
                self.missing.append(f"{path}.{i}: it did not run")
            yield seen.get(twin)

    def _module(self, path: str) -> nn.Module | None:
        try:
            return self.model.get_submodule(path)
        except AttributeError:
            return None

    def _temperature(self, sites: list[Site]) -> Temperature | None:
        """What lengthens the queries of one layer farther away; seen at lengths, and named by one more call."""
        found = [s for s in sites if any((there := each.like(s)) and varies(there) for each in self.lengths.values())]
        if not found:
            return None
        positions = spread(tokens_of(self.call), FAR)
        if self.far is None:
            self.far = look(at_positions(self.call, positions), among=self.modules)
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
            return len(self.model.get_submodule(path.partition(".*.")[0]))  # type: ignore[arg-type]
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
        side = site.q if site.q.turns else site.v
        if isinstance(site.q.frequencies, str) and turns_as_rows_of(site.q, site.k):
            side = site.k
        elif (apart := disagreement(site)) is not None:
            return apart.says
        operator = side.operator
        assert operator is not None
        key = (operator.pairs, operator.inputs, operator.factor, operator.cos.numpy().tobytes())
        if key not in self._sightings:
            self._sightings[key] = self._named(site, side)
        return self._sightings[key]

    def _named(self, site: Site, side: Side) -> Sighting | str:
        """What one side does, or why no spec says it."""
        if (why := _uncounted(site, self.call.positions)) and not self.axes:
            return why
        try:
            return self._sighted(site, self._best_seen(site, side))
        except NoSpec as reason:
            return str(reason)

    def _best_seen(self, site: Site, side: Side) -> Side:
        """The side as another call shows it better: with axes told apart, or farther away."""
        if self.axes is not None and (other := self.axes[1].like(site)) is not None:
            return _same_side(other, side.name)
        if isinstance(found := side.frequencies, Frequencies) and not found.exact:
            far = [there for look in self.lengths.values() if (there := look.like(site)) is not None]
            return _same_side((far or [site])[0], side.name)
        return side

    def _sighted(self, site: Site, side: Side) -> Sighting:
        """What a side does, named with all that was seen of it at other lengths. Raises `NoSpec`."""
        seen = measured(side)
        one = sighting(seen, self.numbers, self._by_length(site, side, len(seen.values)))
        for _ in range(MOST_LOOKS if self.call.takes_positions else 0):
            new = [length for length in one.named.look_at if length not in self.lengths][:1]
            if not new:
                break
            self._look_at(new[0])
            one = sighting(seen, self.numbers, self._by_length(site, side, len(seen.values)))
        return replace(one, spec=self._with_tables(site, side, one.spec))

    def _by_length(self, site: Site, side: Side, count: int) -> dict[int, tuple[tuple[float, ...], float]]:
        """``count`` frequencies in the order of the layout, and the factor, at each length that was looked at.

        Second members of pairs turn as the first ones do where all axes have one position.
        """
        seen = {}
        for length, found in self.lengths.items():
            other = found.like(site)
            if other is not None:
                with contextlib.suppress(NoSpec):
                    there = measured(_same_side(other, side.name))
                    if counts_on(there.found, positions_up_to(length, tokens_of(self.call))):
                        seen[length] = (there.values * (count // len(there.values)), there.factor)
                    else:
                        at = there.found.coordinates[0][-1]
                        self.missing.append(f"{length} tokens: position {length - 1} turns as if it were {at:.6g}")
        return seen

    def _with_tables(self, site: Site, side: Side, spec: RotarySpec) -> RotarySpec:
        other = self.half.like(site)
        operator = None if other is None else _same_side(other, side.name).operator
        tables = None if other is None or operator is None else tables_of(other.q.tape, operator)
        return spec if tables is None else spec.replace(tables=tables)


def _same_side(site: Site, name: str) -> Side:
    return next(side for side in site.sides if side.name == name)


def _uncounted(site: Site, given: torch.Tensor | None) -> str:
    """Why the tokens of the first call are not counted one after the other; empty where they are, or have two axes.

    They may be counted in wider steps only where the call says so, by the positions that are ``given``.
    """
    found = site.q.frequencies if site.q.turns else site.v.frequencies
    if isinstance(found, str) or len(found.coordinates) > 1:
        return ""
    steps = found.coordinates[0].diff()
    told = given is not None and given.shape[-1] == len(steps) + 1 and bool((given.diff() == steps).all())
    if (steps == steps[:1]).all() and (0 < steps[0] <= 1 or (steps[0] > 0 and told)):
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
