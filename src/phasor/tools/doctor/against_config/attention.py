"""Each module that rotates q and k: the functions it has for that, and what it does with them in a real call."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from ....rotary.model_rotary import ModelRotary
from ....rotary.spec import RotarySpec
from ....support.findings import Difference
from ...patch.compare import NEAR_AND_FAR
from ...patch.reading import ModelReading, specs_of, specs_of_layer
from ...patch.sites import PatchSite, nearest
from ..observation import Observation
from ..report import ROTATION, Check
from ..stand_in_tables import rotating_nothing, still_modules, tables_in
from .attention_heads import (
    code_that_runs,
    heads_of,
    is_formed_here,
    mean_square,
    projected,
    rotates_besides,
    rotates_by_nothing,
)
from .causes import way_out
from .functions import Functions, of_functions
from .positions import check_positions
from .rotary_module import per_pair_of
from .rotated_heads import ONLY, RIGHT, TWICE, UNKNOWN, Heads, Outcome, outcome, together
from .tables_in_calls import with_tables

NOT_REACHED = "these inputs do not reach it"
SCALE = 0.01  # of a factor: heads in half precision tell it no better


@dataclass(frozen=True)
class Seen:
    """The outcomes of q and k, or why nothing was seen."""

    q: Outcome = RIGHT
    k: Outcome = RIGHT
    why_not: str = ""
    ran: frozenset[CodeType] = frozenset()  # the code of all functions that were called
    scale: float | None = None  # of the softmax, as attention was given it
    channels: int = 0  # of a head of q, as it reaches attention

    @property
    def known(self) -> bool:
        return not self.why_not and UNKNOWN not in (self.q.cause, self.k.cause)

    @property
    def right(self) -> bool:
        return self.known and not (self.q.cause or self.k.cause)

    @property
    def exact(self) -> bool:
        return self.right and not (self.q.scaled or self.k.scaled)


def seen_in_call(
    module: nn.Module,
    specs: Sequence[RotarySpec],
    rotary: Sequence[nn.Module],
    arguments: dict[str, Any] | None,
    heads: int | None,
) -> Seen:
    """By whichever of ``specs`` explains it best; of the first ``heads`` alone, where no others rotate.

    ``arguments`` are those of a real call, None where none reached it.
    """
    if arguments is None:
        return Seen(why_not=NOT_REACHED)
    with code_that_runs() as ran:
        true = heads_of(module, arguments)
    with still_modules(rotary) as formed, projected(module) as lengths:
        plain = heads_of(module, rotating_nothing(arguments, module))
    if isinstance(true, str) or isinstance(plain, str):
        return Seen(why_not=true if isinstance(true, str) else str(plain), ran=frozenset(ran))
    tables = tables_in(arguments, module)
    tables = (formed[-1] if formed else None) if tables is None else tables
    before, after = ((caught.q[:, :heads], caught.k[:, :heads]) for caught in (plain, true))
    if tables is None:
        return Seen(why_not="the tables that it rotates by are not seen", ran=frozenset(ran))
    formed_here = is_formed_here(module, arguments, true.k)
    readings = [_by(spec, tables, before, after, formed_here) for spec in specs]
    channels = true.q.shape[-1]
    scale = channels**-0.5 if true.scale is None else None if math.isnan(true.scale) else true.scale
    best = next((seen for seen in readings if seen.right), readings[0])
    if best.q.cause == best.k.cause == ONLY and not rotates_by_nothing(module, arguments, true):
        return Seen(why_not="it rotates by tables of its own, which are not seen", ran=frozenset(ran))
    with still_modules(rotary):
        twice = best.right and rotates_besides(module, rotating_nothing(arguments, module), plain)
    if twice:
        says = (
            "the tables rotate q and k rightly, but without them q and k are rotated too: something before rotates them"
        )
        wrong = Outcome(cause=TWICE, says=says, token=1, pair=0)
        return replace(best, q=wrong, k=wrong, ran=frozenset(ran))
    q, k = _longer(best.q, plain.q, lengths.get("q_proj")), _longer(best.k, plain.k, lengths.get("k_proj"))
    return replace(best, q=q, k=k, ran=frozenset(ran), scale=scale, channels=channels)


def rotates(module: nn.Module, arguments: dict[str, Any] | None) -> bool:
    """Whether the tables that a module is given in a call change its q or k."""
    if arguments is None or tables_in(arguments, module) is None:
        return False
    true, plain = heads_of(module, arguments), heads_of(module, rotating_nothing(arguments, module))
    if isinstance(true, str) or isinstance(plain, str):
        return False
    return not (torch.equal(true.q, plain.q) and torch.equal(true.k, plain.k))


def _longer(outcome: Outcome, before: Tensor, projected: float | None) -> Outcome:
    """With the factor by which heads that nothing rotated are longer than what was projected."""
    if outcome.factor is None or not projected:
        return outcome
    factor = math.sqrt(mean_square(before) / projected)
    return replace(outcome, factor=outcome.factor * (1.0 if abs(factor - 1) < 1e-3 else factor))


def _of_first(tables: Any) -> Any:
    """The tables of the first batch entry."""
    if isinstance(tables, Tensor):
        return tables[:1] if tables.ndim > 2 else tables
    return tuple(t[:1] if t.ndim > 2 else t for t in tables)


def _by(spec: RotarySpec, tables: Any, plain: Any, true: Any, with_k: bool) -> Seen:
    if spec.second is not None:
        return Seen(why_not="it turns the members of a pair by different angles")
    outcomes = []
    for before, after in zip(plain, true, strict=True):
        if before.shape != after.shape or before.ndim != 4 or before.shape[-1] != spec.head_dim:
            return Seen(why_not=f"what reaches attention are no heads of {spec.head_dim} channels")
        if not (before.isfinite().all() and after.isfinite().all()):
            return Seen(why_not="its q and k are not finite")
        per_pair = per_pair_of(_of_first(tables), spec, before.shape[2])
        if per_pair is None or per_pair.pairs != spec.pairs:
            return Seen(why_not="its tables have a form that is not known")
        sin = -per_pair.sin if spec.reverse else per_pair.sin
        outcomes.append(outcome(Heads(before[0], after[0], per_pair.cos, sin, spec.layout.written())))
    q, k = outcomes
    return Seen(q, k if with_k else replace(q, cause="") if not q.cause else q)


def check_rotations(observed: Observation, before: Sequence[Check]) -> Iterable[Check]:
    """Each attention: what it does to its q and k, and whether the tables that reach it are those of the config.

    ``before`` are the checks of what forms and keeps tables: whose fault stands there is not told of an attention too.
    """
    checks = [_of_attention(observed, caller) for caller in observed.calls.attentions]
    if observed.on_meta:
        return checks
    return with_tables(observed, checks, [*before, *check_positions(observed)])


def check_unseen_layers(observed: Observation, before: Sequence[Check] = ()) -> Iterator[Check]:
    """More layers that rotate than modules that are known to: others use code of their own."""
    layers = max((len(m.layers) - m.layers.count(None) for m in observed.rotary), default=0)
    seen = len(observed.calls.attentions)
    if seen < layers and not any(site.kind == "method" for site in observed.sites):
        says = f"{layers} layers rotate by the config, and {seen} modules call a function that does"
        yield Check(what=ROTATION, against="spec", verdict="not shown", reason=says, needed=True)


def _of_attention(observed: Observation, caller: PatchSite) -> Check:
    """The real call decides, where it is seen; how the pairs are read, and what is not seen, the functions decide."""
    check = Check(
        where=caller.path, what=ROTATION, against="spec", verdict="right", difference=Difference(of="q and k")
    )
    reading, arguments = observed.reading, observed.calls.arguments.get(caller.module)
    models, reason = reading.models_of(caller.module, nearest(caller.path, list(reading.tables)))
    models = of_its_own(caller.path, models)
    own = specs_of_layer(caller.module, models)
    if own == [None] and rotates(caller.module, arguments):
        says = "it is rotated, and must not be: by the config this layer has no positions"
        return replace(check, verdict="wrong", cause="rotated", reason=says, way_out=way_out("rotated"))
    if reason or own == [None]:
        return replace(check, verdict="not shown", reason=reason or "no rotation in this layer")
    specs = [spec for spec in own if spec is not None] or specs_of(models)
    some = models[0].heads
    seen = seen_in_call(caller.module, specs, list(observed.modules.values()), arguments, some)
    if seen.known and not seen.right:
        return _fault(check, seen.q, seen.k)
    if seen.right and (fault := _of_scale(check, seen, reading, caller.path, models[0].softmax_factor)) is not None:
        return fault
    if some is not None and specs[0].permuted:  # put in order outside of the function, which is given those heads alone
        says = seen.why_not or "its first heads are rotated rightly, and how their pairs are read before is not seen"
        return replace(check, verdict="not shown", reason=says)
    functions = of_functions(reading, caller, specs, seen.ran)
    return _decided(check, seen, functions, specs)


def of_its_own(path: str, models: list[ModelRotary]) -> list[ModelRotary]:
    """Of a module that names a part (``indexer``) that part alone: it may rotate other pairs than attention."""
    name = path.rpartition(".")[2]
    return [m for m in models if m.part.rpartition(".")[2] == name] or models


def _decided(check: Check, seen: Seen, functions: Functions, specs: Sequence[RotarySpec]) -> Check:
    if functions.agrees and not seen.ran:
        says = f"its function is right, and was not seen to run: {seen.why_not}"
        return replace(check, verdict="not shown", reason=says)
    if functions.agrees:
        note = f"of its function; {seen.why_not}" if seen.why_not else ""
        note = note if seen.known else note or "of its function; q and k are changed further before attention"
        size = max(functions.size or 0.0, seen.q.size if seen.exact else 0.0)
        return replace(check, reason=note, difference=check.apart(size=size))
    read_alike = not any(spec.permuted for spec in specs)  # else both ways to read leave the same scores
    if seen.exact and read_alike:
        return replace(check, difference=check.apart(size=max(seen.q.size, seen.k.size)))
    if functions.compared:
        return _fault(check, functions.q, functions.k, NEAR_AND_FAR)
    if seen.right:
        difference = check.apart(size=max(seen.q.size, seen.k.size))
        return replace(check, reason="up to a factor of each token", difference=difference)
    why = seen.why_not or "q and k are changed by more than the rotation"
    return replace(check, verdict="not shown", reason=why, needed=seen.why_not != NOT_REACHED)


def _of_scale(check: Check, seen: Seen, reading: ModelReading, path: str, factor: float) -> Check | None:
    """The fault of a softmax scale, or of a factor on all of q or k, that is not what the config says.

    Attention multiplies scores by ``scale * factor of q * factor of k``. That must be one over the root of the
    channels, times the softmax ``factor`` of the config; or a scale that the class itself forms from this config.
    """
    if seen.scale is None or seen.q.factor is None or seen.k.factor is None:
        return None
    product = seen.scale * seen.q.factor * seen.k.factor
    usual = seen.channels**-0.5 * factor
    own = _scales_of(reading.rebuilt.module(path)) if factor == 1 else {}
    if any(math.isclose(product, scale, rel_tol=SCALE) for scale in (usual, *own.values())):
        return None
    changed = own != _scales_of(reading.model.get_submodule(path))
    if factor == 1 and seen.q.factor == seen.k.factor == 1 and not changed:
        return None  # a scale that its code forms in the call, of which the config says nothing
    says = f"scores are multiplied by {product:.6g}, and must be by {usual:.6g}"
    says += f" (q by {seen.q.factor:.4g}, k by {seen.k.factor:.4g}, the softmax scale is {seen.scale:.6g})"
    return replace(check, verdict="wrong", cause="attention factor", reason=says, way_out=way_out("attention factor"))


def _scales_of(module: nn.Module | None) -> dict[str, float]:
    return {n: v for n, v in vars(module).items() if "scal" in n and isinstance(v, float)} if module else {}


def _fault(check: Check, q: Outcome, k: Outcome, positions: Sequence[int] | None = None) -> Check:
    cause, says = together(q, k)
    wrong = [one for one in (q, k) if one.token is not None]
    first = min(wrong, key=lambda one: one.token or 0, default=None)
    check = replace(check, verdict="wrong", cause=cause or UNKNOWN, reason=says, way_out=way_out(cause))
    if first is None or first.token is None:
        return check
    at = positions[first.token] if positions and first.token < len(positions) else first.token
    return replace(check, difference=check.apart(size=max(q.size, k.size), position=float(at), pair=first.pair))
