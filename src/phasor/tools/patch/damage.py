"""What happened to a buffer that weights do not bring: it was rounded, never filled, or formed for another config."""

from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from typing import Literal

import torch
from torch import Tensor, nn

from .find import rotary_modules
from .rebuilt import formed
from .stored_tables import held_tables

HALVES = (torch.bfloat16, torch.float16)
HUGE = 1e6  # no frequency and no table of positions is as large
WILD = 10.0  # times the fastest frequency: no rotation turns so fast
TINY = 1e-30  # memory that holds other things is full of such numbers
FARTHEST = 2**20  # a position beyond every length at which frequencies change


Kind = Literal["on meta", "rounded", "dtype", "zeros", "garbage", "missing", "other"]


@dataclass(frozen=True)
class Damage:
    """What is wrong, by ``kind`` and in words."""

    kind: Kind
    words: str

    @property
    def understood(self) -> bool:
        """Whether it leaves no doubt that nobody chose these values."""
        return self.kind != "other"


def damage(own: Tensor, sound: Tensor) -> Damage | None:
    """What is wrong with a buffer, beside what the config gives; None if it is the same, bit for bit.

    >>> sound = torch.tensor([1.0, 0.3])
    >>> damage(sound.to(torch.bfloat16), sound)
    Damage(kind='rounded', words='rounded to bfloat16')
    >>> damage(torch.tensor([1.0, 0.1]), sound)
    Damage(kind='other', words='other values than the config gives')
    """
    if own.is_meta:
        return Damage("on meta", "without values, on the meta device")
    own = own.detach().to("cpu")
    alike = own.shape == sound.shape
    if alike and own.dtype == sound.dtype and torch.equal(own, sound):
        return None
    if alike and (word := _rounded(own, sound)):
        return Damage("rounded", f"rounded to {word}")
    if alike and torch.equal(own.to(sound.dtype), sound):
        return Damage("dtype", f"in {name_of(own.dtype)} instead of {name_of(sound.dtype)}")
    if not own.any():
        return Damage("zeros", "zeros")
    if word := _garbage(own, sound):
        return Damage("garbage", word)
    if not alike:
        return Damage("other", f"of shape {list(own.shape)}, where the config gives {list(sound.shape)}")
    return Damage("other", "other values than the config gives")


def damages(module: nn.Module, sound: nn.Module) -> dict[str, Damage]:
    """What is wrong with a module's buffers, by name; nothing where its own calls leave them so (LongRoPE)."""
    found = _against(module, formed(sound))
    if found and any(not _against(module, state) for state in _states(module, sound)):
        return {}
    return found


def keepers(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that keep frequencies or tables of positions which no weights bring, by path."""
    held = {path: module for path, (module, _) in held_tables(model).items()}
    return {path: module for path, module in (rotary_modules(model) | held).items() if formed(module)}


def looks_sound(module: nn.Module) -> bool:
    """Whether nothing speaks against a module's buffers: a cheap look, before a twin is built."""
    return all(_plausible(b) for b in formed(module).values())


def _against(module: nn.Module, sound: dict[str, Tensor]) -> dict[str, Damage]:
    found = {}
    for name, expected in sound.items():
        own = module._buffers.get(name)
        wrong = Damage("missing", "missing") if own is None else None if expected.is_meta else damage(own, expected)
        if wrong is not None:
            found[name] = wrong
    return found


def far_state(sound: nn.Module) -> nn.Module:
    """A copy of a twin's module after a call far beyond every length at which frequencies change."""
    return _called(sound, FARTHEST)


def _states(module: nn.Module, sound: nn.Module) -> list[dict[str, Tensor]]:
    """What calls may leave in the buffers of a module whose frequencies depend on length."""
    reached = getattr(module, "max_seq_len_cached", None)
    if reached is None:
        return []
    return [formed(_called(sound, last)) for last in (int(reached) - 1, FARTHEST)]


def _called(sound: nn.Module, last: int) -> nn.Module:
    """A copy of a module, called with this position; as it was, if it takes no positions."""
    called = deepcopy(sound)
    if "position_ids" not in signature(called.forward).parameters:
        return called
    rope_type = getattr(sound, "rope_type", None)
    kinds = [{"layer_type": kind} for kind in rope_type] if isinstance(rope_type, dict) else [{}]
    for kind in kinds:
        # frequencies change before positions of other axes are refused
        with torch.no_grad(), torch.device("cpu"), suppress(RuntimeError, LookupError, ValueError):
            called(torch.zeros(1, 1, 1), torch.tensor([[last]]), **kind)
    return called


def _rounded(own: Tensor, sound: Tensor) -> str:
    """The half precision through which the sound values went, or both; empty if none."""
    if not own.is_floating_point():
        return ""
    bf16, fp16 = HALVES
    for steps in ((own.dtype,), (bf16,), (fp16,), (bf16, fp16), (fp16, bf16)):
        made = sound
        for dtype in steps:
            made = made.to(dtype)
        if steps[0] in HALVES and torch.equal(made.to(own.dtype), own):
            return " and ".join(name_of(dtype) for dtype in steps)
    return ""


def _garbage(own: Tensor, sound: Tensor) -> str:
    """What memory that nobody wrote to holds, in words; empty where the values may be somebody's."""
    if not own.is_floating_point():
        return ""
    if not own.isfinite().all():
        return "values that are not numbers"
    largest, expected = own.abs().max().item(), sound.abs().max().item()
    if largest > max(HUGE, 2 * expected) or (own.ndim == sound.ndim == 1 and largest > WILD * expected):
        return f"garbage, up to {largest:.1e}"
    if own.shape != sound.shape or own.ndim != 1:
        return ""
    odd = (own < 0) & (sound >= 0) | (own.abs() < TINY) & (sound.abs() > TINY)
    rises = bool((own.diff() > 0).any() and (sound.diff() <= 0).all())
    return "garbage" if odd.any() or rises else ""


def _plausible(own: Tensor) -> bool:
    if own.is_meta or own.dtype in HALVES:
        return False
    if own.dtype != torch.float32:
        return True
    falling = own.ndim != 1 or bool((own >= 0).all() and (own.diff() <= 0).all())  # as inverse frequencies do
    exact = any(torch.equal(own.to(half).to(own.dtype), own) for half in HALVES)
    return falling and bool((own.abs() < HUGE).all()) and not exact


def name_of(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
