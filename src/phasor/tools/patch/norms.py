"""Norms of q and k that run together with the rotation behind them, in one pass.

Whether a module may do that is tried: it runs both ways on random hidden states, and the results are compared.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from inspect import Parameter, signature
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ...rotary.apply import TensorFormat, apply_qk_norm_rotary
from ...rotary.kernels import Norm, Rounding
from ...rotary.kernels.norm import normed
from ...rotary.rotation import Rotation
from ...support.findings import Difference
from ...support.preserve_state import undisturbed
from ...support.tracing import watched
from .compare import INCOMPARABLE, best_of, difference_of, largest, positions_for
from .report import SiteRow, agreement, compared
from .rotate_function import RotatingModule
from .swap import is_patched, patched_class
from .tables import Tables

NAMES = (("q_norm", "k_norm"), ("q_layernorm", "k_layernorm"), ("query_layernorm", "key_layernorm"))
EPS = ("variance_epsilon", "eps")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
THEIR_ROUNDINGS: tuple[Rounding, ...] = ("between", "before_weight")


@dataclass(frozen=True)
class QKNorms:
    """How the norms of q and k of an attention module compute: plain data, equal for layers that are alike."""

    names: tuple[str, str]
    eps: float
    unit_offset: bool
    rounding: Rounding

    def describe(self) -> str:
        weight = "1 + weight" if self.unit_offset else "weight"
        return f"RMSNorm, eps={self.eps:g}, {weight}, rounding={self.rounding!r}"

    def rotate(
        self, q: Tensor, k: Tensor | None, rotation: Rotation, tensor_format: TensorFormat, kernel: str
    ) -> tuple[Tensor, Tensor]:
        """q and k, which the norms left as they were, normalised and rotated."""
        of_q, of_k = PENDING.take(k is not None)
        return apply_qk_norm_rotary(
            q, k, rotation, of_q, of_k, eps=self.eps, unit_offset=self.unit_offset, rounding=self.rounding,
            across_heads=of_q is not None and len(of_q) != q.shape[-1], tensor_format=tensor_format, kernel=kernel,
        )  # fmt: skip


class PendingNorms(threading.local):
    """The norms that are to leave their input as it is, while an attention module runs, and those that have."""

    norms: tuple[nn.Module, ...] = ()
    left: tuple[nn.Module, ...] = ()

    @contextmanager
    def holding(self, norms: tuple[nn.Module, ...]) -> Iterator[None]:
        before = self.norms, self.left
        self.norms, self.left = norms, ()
        try:
            yield
            if self.left:
                raise AssertionError("a norm was left to the rotation, and the model's code did not rotate")
        finally:
            self.norms, self.left = before

    def leave(self, norm: nn.Module) -> bool:
        if not any(norm is pending for pending in self.norms):
            return False
        self.left += (norm,)
        return True

    def take(self, both: bool) -> tuple[Tensor | None, Tensor | None]:
        """The weights of the norms that left q and k as they were."""
        left, self.left = self.left, ()
        if len(left) != 1 + both:
            raise AssertionError(f"{1 + both} norms must have been left to the rotation, and {len(left)} were")
        weights = {id(norm): getattr(norm, "weight", None) for norm in left}
        return (weights[id(self.norms[0])], weights[id(self.norms[1])]) if both else (weights[id(left[0])], None)


PENDING = PendingNorms()


@dataclass(frozen=True)
class DeferredNorm:
    """Methods for a norm: it leaves its input as it is where a rotation has taken over what it does."""

    def methods(self, cls: type[nn.Module]) -> dict[str, Callable]:
        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            return args[0] if PENDING.leave(self) else cls.forward(self, *args, **kwargs)

        return {"forward": forward}


def fusing(known: QKNorms, fused: Callable, plain: Callable) -> Callable:
    """A forward pass that holds the norms; ``plain`` where something watches or changed them, or compiles."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        norms = tuple(getattr(self, name) for name in known.names)
        if watched() or any(_is_watched(norm) or _widens(norm, known) or _eps_of(norm) != known.eps for norm in norms):
            return plain(self, *args, **kwargs)
        with PENDING.holding(norms):
            return fused(self, *args, **kwargs)

    return forward


def _is_watched(norm: nn.Module) -> bool:
    """Whether something else looks at what a norm gives, or has changed it since."""
    hooked = nn.modules.module._has_any_global_hook() or any(getattr(norm, name) for name in HOOKS)  # type: ignore[no-untyped-call]
    return bool(hooked) or "forward" in vars(norm) or not is_patched(norm)


def _widens(norm: nn.Module, known: QKNorms) -> bool:
    """Whether its result has the dtype of its weight, which autocast does not narrow as it does that of heads."""
    weight = getattr(norm, "weight", None)
    return known.rounding == "before_weight" and weight is not None and torch.is_autocast_enabled(weight.device.type)


def _eps_of(norm: nn.Module) -> float | None:
    return next((value for name in EPS if isinstance(value := getattr(norm, name, None), float)), None)


def norms_of(module: nn.Module) -> tuple[str, str] | None:
    """The names of its norms of q and k, if it has both."""
    return next((n for n in NAMES if all(isinstance(getattr(module, m, None), nn.Module) for m in n)), None)


def compare_norm(norm: nn.Module, names: tuple[str, str], dtypes: tuple[torch.dtype, ...]) -> tuple[Any, Difference]:
    """The `QKNorms` that agrees best with what a norm does, with random weights in its place."""
    eps, weight = _eps_of(norm), getattr(norm, "weight", None)
    if eps is None or len(list(norm.parameters())) > 1 or weight is None or weight.ndim != 1:
        return None, INCOMPARABLE
    random = torch.Generator().manual_seed(0)
    values, x = (torch.randn(*size, len(weight), generator=random, device="cpu") for size in ((), (2, 5)))
    probe: Any = deepcopy(norm).to_empty(device="cpu")
    kinds = (QKNorms(names, eps, *kind) for kind in product((False, True), THEIR_ROUNDINGS))
    try:
        return best_of((kind, largest(_differences(probe, values, x, kind, dtypes))) for kind in kinds)
    except (RuntimeError, TypeError, ValueError):  # it does not take heads alone
        return None, INCOMPARABLE


def _differences(
    probe: Any, values: Tensor, x: Tensor, kind: QKNorms, dtypes: tuple[torch.dtype, ...]
) -> Iterator[Difference]:
    norm = Norm(None, None, kind.eps, kind.unit_offset, False, False, kind.rounding)
    for dtype in dtypes:
        probe = probe.to(dtype)
        with torch.no_grad():
            probe.weight.copy_(values)
            theirs = probe.forward(x.to(dtype))
        yield difference_of(theirs, normed(x.to(dtype), probe.weight.detach(), norm, -3, dtype))


LEFT_OUT = ("attention_mask", "cache", "past_key_values", "past_key_value", "cache_position")


@dataclass(frozen=True)
class FusedModule:
    """Methods for a module that rotates what its norms have left as it was."""

    rotating: RotatingModule
    norms: QKNorms

    def methods(self, cls: type[nn.Module]) -> dict[str, Any]:
        plain, fused = self.rotating.methods(cls), self.rotating.methods(cls, self.norms)
        return plain | {"forward": fusing(self.norms, fused["forward"], plain["forward"])}


def try_fusing(
    row: SiteRow,
    module: nn.Module,
    rotating: RotatingModule,
    tables: tuple[Tables, ...],
    dtypes: tuple[torch.dtype, ...],
) -> tuple[SiteRow, QKNorms | None] | None:
    """What became of the norms of q and k of a module, and how they compute; None for a module without them."""
    names = norms_of(module)
    if names is None:
        return None
    row = replace(row, what=" and ".join(names))
    if [*(own := rotating.methods(type(module)))] != ["forward"]:
        return replace(row, reason=f"it rotates in {', '.join(own)}, not in its forward pass"), None
    norms, difference = compare_norm(getattr(module, names[0]), names, dtypes)
    if not difference.close or compare_norm(getattr(module, names[1]), names, dtypes)[0] != norms:
        return replace(row, reason="they are no RMSNorms of a kind that is known"), None
    row = replace(row, spec=norms.describe())
    if any(p.is_meta for p in module.parameters()):
        return replace(row, reason="on the meta device the module cannot be run to be compared"), None
    arguments = _arguments(module, tables)
    if arguments is None:
        return replace(row, reason="its arguments are not known"), None
    try:
        difference = _compared(module, FusedModule(rotating, norms), arguments)
    except (AssertionError, ValueError) as error:  # of `PENDING`, and of the checks of apply_qk_norm_rotary
        return replace(row, reason=f"they do not stand right before the rotation ({error})"), None
    except Exception as error:  # of the model's own code, on arguments that are made up here
        why = f"it could not be run to be compared ({type(error).__name__}: {error})"
        return replace(row, reason=why), None
    if not difference.close:
        return replace(row, reason="the module then gives something else"), None
    row = compared(row, difference, f"{agreement(difference)}, forwards")
    return replace(row, kernel="apply_qk_norm_rotary"), norms


def _arguments(module: nn.Module, tables: tuple[Tables, ...]) -> dict[str, Any] | None:
    """Arguments for its forward pass, with random hidden states."""
    linear = next((m for m in module.modules() if isinstance(m, nn.Linear)), None)
    known = signature(type(module).forward).parameters
    if linear is None or not tables or not {"hidden_states", "position_embeddings"} <= set(known):
        return None
    needed = [
        name for name, p in known.items() if p.default is Parameter.empty and p.kind is Parameter.POSITIONAL_OR_KEYWORD
    ]
    if not set(needed) <= {"self", "hidden_states", "position_embeddings", *LEFT_OUT}:
        return None
    positions = next(iter(positions_for(tables[0].spec, torch.device("cpu"))))
    positions = positions[0] if len(positions) == 1 else positions
    if tables[0].coordinates_last:
        positions = positions.movedim(0, -1)
    tokens, weight = positions.shape[-1 - tables[0].coordinates_last], linear.weight
    hidden = torch.randn(1, tokens, linear.in_features, generator=torch.Generator().manual_seed(0), device="cpu")
    hidden, positions = hidden.to(weight.device, weight.dtype), positions.to(weight.device)
    of_tables = {"hidden_states": hidden, "position_embeddings": tables[0].at(hidden, positions)}
    return of_tables | {name: None for name in LEFT_OUT if name in needed}


def _compared(module: nn.Module, recipe: FusedModule, arguments: dict[str, Any]) -> Difference:
    cls = type(module)
    norms = tuple(getattr(module, name) for name in recipe.norms.names)
    classes = tuple(type(norm) for norm in norms)
    fused = recipe.rotating.methods(cls, recipe.norms)["forward"]
    with undisturbed(module):  # dropout would tell two runs apart
        theirs = cls.forward(module, **arguments)
        try:
            for norm in norms:
                norm.__class__ = patched_class(type(norm), DeferredNorm())
            with PENDING.holding(norms):
                ours = fused(module, **arguments)
        finally:
            for norm, before in zip(norms, classes, strict=True):
                norm.__class__ = before
    return difference_of(theirs, ours)
