"""Norms of q and k that run together with the rotation behind them, in one pass."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from ...rotary.apply import TensorFormat, apply_qk_norm_rotary
from ...rotary.kernels import Norm, Rounding
from ...rotary.kernels.norm import normed
from ...rotary.rotation import Rotation
from ...support.tracing import watched
from .agreement import NONE, Agreement, worst
from .compare import best_of
from .swap import is_dressed

NAMES = (("q_norm", "k_norm"), ("q_layernorm", "k_layernorm"), ("query_layernorm", "key_layernorm"))
EPS = ("variance_epsilon", "eps")
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
THEIR_ROUNDINGS: tuple[Rounding, ...] = ("between", "before_weight")


@dataclass(frozen=True)
class Fused:
    """How the norms of an attention module compute; plain data, equal for layers that are alike."""

    names: tuple[str, str]
    eps: float
    unit_offset: bool
    rounding: Rounding

    def describe(self) -> str:
        weight = "1 + weight" if self.unit_offset else "weight"
        return f"RMSNorm, eps={self.eps:g}, {weight}, rounding={self.rounding!r}"

    def turn(
        self, q: Tensor, k: Tensor | None, rotation: Rotation, tensor_format: TensorFormat, kernel: str
    ) -> tuple[Tensor, Tensor]:
        """q and k, which the norms left as they were, normalised and turned."""
        of_q, of_k = HELD.take(k is not None)
        return apply_qk_norm_rotary(
            q, k, rotation, of_q, of_k, eps=self.eps, unit_offset=self.unit_offset, rounding=self.rounding,
            across_heads=of_q is not None and len(of_q) != q.shape[-1], tensor_format=tensor_format, kernel=kernel,
        )  # fmt: skip


class Held(threading.local):
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
        if not any(norm is held for held in self.norms):
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


HELD = Held()


@dataclass(frozen=True)
class LeftNorm:
    """Methods for a norm: it leaves its input as it is where a rotation has taken over what it does."""

    def methods(self, cls: type[nn.Module]) -> dict[str, Callable]:
        def forward(self: nn.Module, *given: Any, **more: Any) -> Any:
            return given[0] if HELD.leave(self) else cls.forward(self, *given, **more)

        return {"forward": forward}


def fusing(known: Fused, fused: Callable, plain: Callable) -> Callable:
    """A forward pass that holds the norms; ``plain`` where something watches or changed them, or compiles."""

    def forward(self: nn.Module, *given: Any, **more: Any) -> Any:
        norms = tuple(getattr(self, name) for name in known.names)
        if watched() or any(_seen(norm) or _widens(norm, known) or _eps_of(norm) != known.eps for norm in norms):
            return plain(self, *given, **more)
        with HELD.holding(norms):
            return fused(self, *given, **more)

    return forward


def _seen(norm: nn.Module) -> bool:
    """Whether something else looks at what a norm gives, or has changed it since."""
    hooked = nn.modules.module._has_any_global_hook() or any(getattr(norm, name) for name in HOOKS)  # type: ignore[no-untyped-call]
    return bool(hooked) or "forward" in vars(norm) or not is_dressed(norm)


def _widens(norm: nn.Module, known: Fused) -> bool:
    """Whether its result has the dtype of its weight, which autocast does not narrow as it does that of heads."""
    weight = getattr(norm, "weight", None)
    return known.rounding == "before_weight" and weight is not None and torch.is_autocast_enabled(weight.device.type)


def _eps_of(norm: nn.Module) -> float | None:
    return next((value for name in EPS if isinstance(value := getattr(norm, name, None), float)), None)


def norms_of(module: nn.Module) -> tuple[str, str] | None:
    """The names of its norms of q and k, if it has both."""
    return next((n for n in NAMES if all(isinstance(getattr(module, m, None), nn.Module) for m in n)), None)


def compare_norm(norm: nn.Module, names: tuple[str, str], dtypes: tuple[torch.dtype, ...]) -> tuple[Any, Agreement]:
    """The `Fused` that agrees best with what a norm does, with random weights in its place."""
    eps, weight = _eps_of(norm), getattr(norm, "weight", None)
    if eps is None or len(list(norm.parameters())) > 1 or weight is None or weight.ndim != 1:
        return None, NONE
    random = torch.Generator().manual_seed(0)
    values, x = (torch.randn(*size, len(weight), generator=random, device="cpu") for size in ((), (2, 5)))
    probe: Any = deepcopy(norm).to_empty(device="cpu")
    kinds = (Fused(names, eps, *kind) for kind in product((False, True), THEIR_ROUNDINGS))
    try:
        return best_of((kind, worst(_agreements(probe, values, x, kind, dtypes))) for kind in kinds)
    except (RuntimeError, TypeError, ValueError):  # it does not take heads alone
        return None, NONE


def _agreements(
    probe: Any, values: Tensor, x: Tensor, kind: Fused, dtypes: tuple[torch.dtype, ...]
) -> Iterator[Agreement]:
    asked = Norm(None, None, kind.eps, kind.unit_offset, False, False, kind.rounding)
    for dtype in dtypes:
        probe = probe.to(dtype)
        with torch.no_grad():
            probe.weight.copy_(values)
            theirs = probe.forward(x.to(dtype))
        yield Agreement.of(theirs, normed(x.to(dtype), probe.weight.detach(), asked, -3, dtype))
