"""Buffers of a model formed anew in place, and modules compared as they would be with sound buffers."""

from collections.abc import Callable, Iterable
from copy import deepcopy

import torch
from torch import Tensor, nn

from .compare import Found
from .damage import damages, looks_sound
from .rebuilt import Twins, formed, own_class


def compare_mended(
    twins: Twins, path: str, module: nn.Module, probe: nn.Module, compare: Callable[[nn.Module], Found]
) -> tuple[Found, str]:
    """What agrees best with a module; or with its twin, and the damage in words, where that is understood."""
    found = compare(probe)
    if found[1].equal:
        return found, ""
    sound, words = _understood(twins, path, module)
    if sound is None:
        return found, ""
    better = compare(deepcopy(sound))
    return (better, f"; its own was {words}") if better[1].equal else (found, "")


def mend(model: nn.Module, paths: Iterable[str]) -> None:
    """Form the buffers of these modules anew where their damage is understood."""
    twins = Twins(model)
    made: dict[int, Tensor] = {}
    for path in paths:
        module = model.get_submodule(path)
        if looks_sound(module):
            continue
        sound, _ = _understood(twins, path, module)
        if sound is not None:
            for name in damages(module, sound):
                put_buffer(model, path, name, formed(sound)[name], made)


def _understood(twins: Twins, path: str, module: nn.Module) -> tuple[nn.Module | None, str]:
    """The twin of a module of which all that is wrong leaves no doubt, and what that is."""
    try:
        sound = twins.module(path)
    except ValueError:  # not to be built from its config
        return None, ""
    if sound is None or own_class(module) is not type(sound) or any(b.is_meta for b in formed(sound).values()):
        return None, ""
    found = damages(module, sound).values()
    if not found or not all(damage.understood for damage in found):
        return None, ""
    return sound, " and ".join(dict.fromkeys(damage.words for damage in found))


def put_buffer(model: nn.Module, path: str, name: str, sound: Tensor, made: dict[int, Tensor]) -> None:
    """Give a buffer its values: in its own memory where they fit, else in new memory, once for tied buffers."""
    module = model.get_submodule(path)
    own = module._buffers.get(name)
    if own is not None and (own.shape, own.dtype) == (sound.shape, sound.dtype) and not _fixed(own):
        with torch.no_grad():
            own.copy_(sound)
        return
    key = id(own) if own is not None else id(sound)
    if key not in made or not torch.equal(made[key].cpu(), sound):
        made[key] = sound.clone().to(_device(model, path) if own is None or own.is_meta else own.device)
    module._buffers[name] = made[key]


def _fixed(own: Tensor) -> bool:
    return own.is_meta or own.is_inference()


def _device(model: nn.Module, path: str) -> torch.device:
    """The device of the weights that are nearest to a module."""
    steps = path.split(".")
    for n in range(len(steps), -1, -1):
        near = model.get_submodule(".".join(steps[:n]))
        if found := [p.device for p in near.parameters() if not p.is_meta]:
            return found[0]
    return torch.device("cpu")
