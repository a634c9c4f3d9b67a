"""Whether an attention module may run its norms and its rotation as one: it is tried, and compared with what it did."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import torch
from torch import nn

from .agreement import NONE, Agreement
from .compare import positions_for
from .norms import HELD, Fused, LeftNorm, compare_norm, fusing, norms_of
from .rotate_function import TurningModule
from .swap import dressed
from .tables import Tables

LEFT_OUT = ("attention_mask", "past_key_values", "past_key_value", "cache_position")


@dataclass(frozen=True)
class FusedModule:
    """Methods for a module that turns what its norms have left as it was."""

    turning: TurningModule
    norms: Fused

    def methods(self, cls: type[nn.Module]) -> dict[str, Any]:
        plain, fused = self.turning.methods(cls), self.turning.methods(cls, self.norms)
        return plain | {"forward": fusing(self.norms, fused["forward"], plain["forward"])}


@dataclass(frozen=True)
class Fusion:
    """What was found about one module: its norms, how well the whole agrees, and why not."""

    what: str
    norms: Fused | None = None
    agreement: Agreement = NONE
    reason: str = ""


def try_fusing(
    module: nn.Module, turning: TurningModule, tables: tuple[Tables, ...], dtypes: tuple[torch.dtype, ...]
) -> Fusion | None:
    """None for a module without norms of q and k."""
    names = norms_of(module)
    if names is None:
        return None
    what = " and ".join(names)
    if turning.names != ("forward",):
        return Fusion(what, reason=f"it turns in {', '.join(turning.names)}, not in its forward pass")
    found, agreement = compare_norm(getattr(module, names[0]), names, dtypes)
    if not agreement.close or compare_norm(getattr(module, names[1]), names, dtypes)[0] != found:
        return Fusion(what, reason="they are no RMSNorms of a kind that is known")
    if any(p.is_meta for p in module.parameters()):
        return Fusion(what, found, reason="on the meta device the module cannot be run to be compared")
    given = _given(module, tables)
    if given is None:
        return Fusion(what, found, reason="its arguments are not known")
    try:
        agreement = _compared(module, FusedModule(turning, found), given)
    except (AssertionError, ValueError) as error:  # of `HELD`, and of the checks of apply_qk_norm_rotary
        return Fusion(what, found, reason=f"they do not stand right before the rotation ({error})")
    except Exception as error:  # of the model's own code, on arguments that are made up here
        return Fusion(what, found, reason=f"it could not be run to be compared ({type(error).__name__}: {error})")
    return Fusion(what, found, agreement, "" if agreement.close else "the module then gives something else")


def _given(module: nn.Module, tables: tuple[Tables, ...]) -> dict[str, Any] | None:
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


def _compared(module: nn.Module, recipe: FusedModule, given: dict[str, Any]) -> Agreement:
    cls = type(module)
    norms = tuple(getattr(module, name) for name in recipe.norms.names)
    classes = tuple(type(norm) for norm in norms)
    fused = recipe.turning.methods(cls, recipe.norms)["forward"]
    with torch.no_grad(), _quiet(module):
        theirs = cls.forward(module, **given)
        try:
            for norm in norms:
                norm.__class__ = dressed(type(norm), LeftNorm())
            with HELD.holding(norms):
                ours = fused(module, **given)
        finally:
            for norm, before in zip(norms, classes, strict=True):
                norm.__class__ = before
    return Agreement.of(theirs, ours)


@contextmanager
def _quiet(module: nn.Module) -> Iterator[None]:
    """In evaluation mode, for a while: dropout would tell two runs apart."""
    modes = [(m, m.training) for m in module.modules()]
    try:
        module.eval()
        yield
    finally:
        for m, mode in modes:
            m.training = mode
