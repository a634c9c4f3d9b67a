"""One attention in a real call: what it did to its q and k, given the tables that it was given."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import CodeType
from typing import Any

import torch
from torch import Tensor, nn

from ....rotary.spec import RotarySpec
from .caught import heads_of
from .module_tables import per_pair_of
from .observed import (
    Calls,
    code_that_runs,
    is_formed_here,
    mean_square,
    projected,
    rotates_besides,
    rotates_by_nothing,
    rotating_nothing,
    still_modules,
    tables_in,
)
from .rotated_heads import ONLY, RIGHT, TWICE, UNKNOWN, Heads, Outcome, outcome

NOT_REACHED = "these inputs do not reach it"


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
    rotary: list[nn.Module],
    calls: Calls,
    heads: int | None = None,
) -> Seen:
    """By whichever of ``specs`` explains it best; of the first ``heads`` alone, where no others rotate."""
    arguments = calls.first.get(module)
    if arguments is None:
        return Seen(why_not=NOT_REACHED)
    with code_that_runs() as ran:
        true = heads_of(module, arguments)
    with still_modules(rotary) as formed, projected(module) as lengths:
        plain = heads_of(module, rotating_nothing(arguments))
    if isinstance(true, str) or isinstance(plain, str):
        return Seen(why_not=true if isinstance(true, str) else str(plain), ran=frozenset(ran))
    tables = tables_in(arguments)
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
        twice = best.right and rotates_besides(module, rotating_nothing(arguments), plain)
    if twice:
        says = (
            "the tables rotate q and k rightly, but without them q and k are rotated too: something before rotates them"
        )
        wrong = Outcome(cause=TWICE, says=says, token=1, pair=0)
        return replace(best, q=wrong, k=wrong, ran=frozenset(ran))
    q, k = _longer(best.q, plain.q, lengths.get("q_proj")), _longer(best.k, plain.k, lengths.get("k_proj"))
    return replace(best, q=q, k=k, ran=frozenset(ran), scale=scale, channels=channels)


def rotates(module: nn.Module, calls: Calls) -> bool:
    """Whether the tables that a module is given in a call change its q or k."""
    arguments = calls.first.get(module)
    if arguments is None or tables_in(arguments) is None:
        return False
    true, plain = heads_of(module, arguments), heads_of(module, rotating_nothing(arguments))
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
