"""Damaged buffers that no weights bring: rounded, never filled, formed for another config; and how to restore them."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from inspect import signature
from typing import Literal

import torch
from torch import Tensor, nn

from ...support.on_cpu import on_cpu
from .compare import Best
from .rebuilt import RebuiltModels, config_buffers, own_class
from .sites import rotary_modules, stored_tables

HALVES = (torch.bfloat16, torch.float16)
HUGE = 1e6  # no frequency and no table of positions is as large
WILD = 10.0  # times the fastest frequency: no rotation is so fast
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
    wrong = _against(module, config_buffers(sound))
    if wrong and any(not _against(module, state) for state in _states(module, sound)):
        return {}
    return wrong


def modules_with_tables(model: nn.Module) -> dict[str, nn.Module]:
    """Modules that keep frequencies or tables of positions which no weights bring, by path."""
    stored = {path: module for path, (module, _) in stored_tables(model).items()}
    return {path: module for path, module in (rotary_modules(model) | stored).items() if config_buffers(module)}


def looks_undamaged(module: nn.Module) -> bool:
    """Whether nothing speaks against a module's buffers: a cheap look, before the model is built again."""
    return all(_plausible(b) for b in config_buffers(module).values())


def _against(module: nn.Module, sound: dict[str, Tensor]) -> dict[str, Damage]:
    damaged = {}
    for name, expected in sound.items():
        own = module._buffers.get(name)
        wrong = Damage("missing", "missing") if own is None else None if expected.is_meta else damage(own, expected)
        if wrong is not None:
            damaged[name] = wrong
    return damaged


def far_state(sound: nn.Module) -> nn.Module:
    """A copy of a module built again, after a call far beyond every length at which frequencies change."""
    return _called(sound, FARTHEST)


def _states(module: nn.Module, sound: nn.Module) -> list[dict[str, Tensor]]:
    """What calls may leave in the buffers of a module whose frequencies depend on length."""
    reached = getattr(module, "max_seq_len_cached", None)
    if reached is None:
        return []
    return [config_buffers(_called(sound, last)) for last in (int(reached) - 1, FARTHEST)]


def _called(sound: nn.Module, last: int) -> nn.Module:
    """A copy of a module, called with this position; as it was, if it takes no positions."""
    called = deepcopy(sound)
    if "position_ids" not in signature(called.forward).parameters:
        return called
    rope_type = getattr(sound, "rope_type", None)
    kinds = [{"layer_type": kind} for kind in rope_type] if isinstance(rope_type, dict) else [{}]
    for kind in kinds:
        # frequencies change before positions of other axes are refused
        with torch.no_grad(), on_cpu(), suppress(RuntimeError, LookupError, ValueError):
            called(torch.zeros(1, 1, 1), torch.tensor([[last]]), **kind)
    return called


def _rounded(own: Tensor, sound: Tensor) -> str:
    """The half precision through which the sound values went, or both; empty if none."""
    if not own.is_floating_point():
        return ""
    bf16, fp16 = HALVES
    for steps in ((own.dtype,), (bf16,), (fp16,), (bf16, fp16), (fp16, bf16)):
        rounded = sound
        for dtype in steps:
            rounded = rounded.to(dtype)
        if steps[0] in HALVES and torch.equal(rounded.to(own.dtype), own):
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
    if torch.allclose(own.abs().sort().values.to(sound), sound.abs().sort().values):
        return ""  # in another order, or of the other sign, they are all there
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


def compare_undamaged(
    models: RebuiltModels, path: str, module: nn.Module, probe: nn.Module, compare: Callable[[nn.Module], Best]
) -> tuple[Best, str]:
    """What agrees best with a module; where its damage is understood, with the module built again, and the damage."""
    best = compare(probe)
    if best[1].exact:
        return best, ""
    sound, words = _understood(models, path, module)
    if sound is None:
        return best, ""
    better = compare(deepcopy(sound))
    return (better, f"; its own was {words}") if better[1].exact else (best, "")


def restore(model: nn.Module, paths: Iterable[str]) -> None:
    """Form the buffers of these modules anew where their damage is understood."""
    models = RebuiltModels(model)
    new: dict[int, Tensor] = {}
    for path in paths:
        module = model.get_submodule(path)
        if looks_undamaged(module):
            continue
        sound, _ = _understood(models, path, module)
        if sound is not None:
            for name in damages(module, sound):
                put_buffer(model, path, name, config_buffers(sound)[name], new)


def _understood(models: RebuiltModels, path: str, module: nn.Module) -> tuple[nn.Module | None, str]:
    """The module built again, of which all that is wrong leaves no doubt, and what that is."""
    try:
        sound = models.module(path)
    except ValueError:  # not to be built from its config
        return None, ""
    if sound is None or own_class(module) is not type(sound) or any(b.is_meta for b in config_buffers(sound).values()):
        return None, ""
    wrong = damages(module, sound).values()
    if not wrong or not all(damage.understood for damage in wrong):
        return None, ""
    return sound, " and ".join(dict.fromkeys(damage.words for damage in wrong))


def put_buffer(model: nn.Module, path: str, name: str, sound: Tensor, new: dict[int, Tensor]) -> None:
    """Give a buffer its values: in its own memory where they fit, else in new memory, once for tied buffers."""
    module = model.get_submodule(path)
    own = module._buffers.get(name)
    if own is not None and (own.shape, own.dtype) == (sound.shape, sound.dtype) and not _fixed(own):
        with torch.no_grad():
            own.copy_(sound)
        return
    key = id(own) if own is not None else id(sound)
    if key not in new or not torch.equal(new[key].cpu(), sound):
        new[key] = sound.clone().to(_device(model, path) if own is None or own.is_meta else own.device)
    module._buffers[name] = new[key]


def _fixed(own: Tensor) -> bool:
    return own.is_meta or own.is_inference()


def _device(model: nn.Module, path: str) -> torch.device:
    """The device of the weights that are nearest to a module."""
    steps = path.split(".")
    for n in range(len(steps), -1, -1):
        near = model.get_submodule(".".join(steps[:n]))
        if devices := [p.device for p in near.parameters() if not p.is_meta]:
            return devices[0]
    return torch.device("cpu")
