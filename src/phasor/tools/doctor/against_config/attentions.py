"""Each module that rotates q and k: the functions it has for that, and what it does with them in a real call."""

import math
from collections.abc import Sequence
from dataclasses import replace

from torch import nn

from ....models.reading.model import ModelRotary
from ....rotary.spec import RotarySpec
from ....support.findings import Difference
from ...patch.compare import NEAR_AND_FAR
from ...patch.reading import ModelReading, specs_of, specs_of_layer
from ...patch.sites import PatchSite, nearest
from ..report import Check
from .attention_call import NOT_REACHED, Seen, rotates, seen_in_call
from .causes import way_out
from .functions import Functions, of_functions
from .observed import Calls
from .rotated_heads import UNKNOWN, Outcome, together

SCALE = 0.01  # of a factor: heads in half precision tell it no better


def check_of_attention(plan: ModelReading, caller: PatchSite, rotary: list[nn.Module], calls: Calls) -> Check:
    """The real call decides, where it is seen; how the pairs are read, and what is not seen, the functions decide."""
    check = Check(
        where=caller.path,
        what="rotation of q and k",
        against="spec",
        verdict="right",
        difference=Difference(of="q and k"),
    )
    models, reason = plan.models_of(caller.module, nearest(caller.path, list(plan.tables)))
    models = _of_its_own(caller.path, models)
    own = specs_of_layer(caller.module, models)
    if own == [None] and rotates(caller.module, calls):
        says = "it is rotated, and must not be: by the config this layer has no positions"
        return replace(check, verdict="wrong", cause="rotated", reason=says, way_out=way_out("rotated"))
    if reason or own == [None]:
        return replace(check, verdict="not shown", reason=reason or "no rotation in this layer")
    specs = [spec for spec in own if spec is not None] or specs_of(models)
    some = models[0].heads
    seen = seen_in_call(caller.module, specs, rotary, calls, some)
    if seen.known and not seen.right:
        return _fault(check, seen.q, seen.k)
    if seen.right and (fault := _of_scale(check, seen, plan, caller.path, models[0].softmax_factor)) is not None:
        return fault
    if some is not None and specs[0].permuted:  # put in order outside of the function, which is given those heads alone
        says = seen.why_not or "its first heads are rotated rightly, and how their pairs are read before is not seen"
        return replace(check, verdict="not shown", reason=says)
    functions = of_functions(plan, caller, specs, seen.ran)
    return _decided(check, seen, functions, specs)


def _of_its_own(path: str, models: list[ModelRotary]) -> list[ModelRotary]:
    """Of a module that names a part (``indexer``) that part alone: it may rotate other pairs than attention."""
    name = path.rpartition(".")[2]
    return [m for m in models if m.part.rpartition(".")[2] == name] or models


def _decided(check: Check, seen: Seen, functions: Functions, specs: Sequence[RotarySpec]) -> Check:
    if functions.agrees and not seen.ran:
        return replace(
            check, verdict="not shown", reason=f"its function is right, and was not seen to run: {seen.why_not}"
        )
    if functions.agrees:
        note = f"of its function; {seen.why_not}" if seen.why_not else ""
        note = note if seen.known else note or "of its function; q and k are changed further before attention"
        return replace(
            check,
            reason=note,
            difference=check.apart(size=max(functions.size or 0.0, seen.q.size if seen.exact else 0.0)),
        )
    read_alike = not any(spec.permuted for spec in specs)  # else both ways to read leave the same scores
    if seen.exact and read_alike:
        return replace(check, difference=check.apart(size=max(seen.q.size, seen.k.size)))
    if functions.compared:
        return _fault(check, functions.q, functions.k, NEAR_AND_FAR)
    if seen.right:
        return replace(
            check,
            reason="up to a factor of each token",
            difference=check.apart(size=max(seen.q.size, seen.k.size)),
        )
    why = seen.why_not or "q and k are changed by more than the rotation"
    return replace(check, verdict="not shown", reason=why, needed=seen.why_not != NOT_REACHED)


def _of_scale(check: Check, seen: Seen, plan: ModelReading, path: str, factor: float) -> Check | None:
    """The fault of a softmax scale, or of a factor on all of q or k, that is not what the config says.

    Attention multiplies scores by ``scale * factor of q * factor of k``. That must be one over the root of the
    channels, times the softmax ``factor`` of the config; or a scale that the class itself forms from this config.
    """
    if seen.scale is None or seen.q.factor is None or seen.k.factor is None:
        return None
    product = seen.scale * seen.q.factor * seen.k.factor
    usual = seen.channels**-0.5 * factor
    own = _scales_of(plan.rebuilt.module(path)) if factor == 1 else {}
    if any(math.isclose(product, scale, rel_tol=SCALE) for scale in (usual, *own.values())):
        return None
    changed = own != _scales_of(plan.model.get_submodule(path))
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
    return replace(
        check,
        difference=check.apart(size=max(q.size, k.size), position=float(at), pair=first.pair),
    )
