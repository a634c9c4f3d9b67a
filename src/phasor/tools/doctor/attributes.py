"""Plain attributes of a module that follow from the config: factors, kinds of scaling, lengths."""

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..patch.damage import damages, far_state

PLAIN = (bool, int, float, str, dict, tuple, list, type(None))
STATE = "max_seq_len_cached"  # dynamic NTK remembers here how far it has come
# In a module that does more than form tables, only attributes of these names follow from the rotation.
FOLLOW = ("rot", "rope", "scal", "factor")


@dataclass(frozen=True)
class Attribute:
    """A wrong attribute, what it was, and what it must be; ``gone``: one that the module forms when it needs it."""

    name: str
    was: str
    value: Any = None
    gone: bool = False

    def put(self, module: nn.Module) -> None:
        if self.gone:
            delattr(module, self.name)
        else:
            setattr(module, self.name, deepcopy(self.value))


def wrong_attributes(module: nn.Module, sound: nn.Module, whole: bool) -> list[Attribute]:
    """Attributes that differ from the twin's; ``whole``: of a module that does nothing but form tables."""
    begun_anew = bool(damages(module, sound))
    attributes = []
    for name, value in vars(sound).items():
        own = vars(module).get(name)
        counts = whole or any(word in name for word in FOLLOW)
        if name.startswith("_") or name == "training" or not counts or not isinstance(value, PLAIN):
            continue
        if (name.endswith(STATE) or value is None) and not begun_anew:  # what calls leave there
            continue
        if isinstance(own, (*PLAIN, Tensor)) and not _same(own, value):
            was = "kept from earlier calls" if value is None else f"{_short(own)} instead of {_short(value)}"
            attributes.append(Attribute(name, was, value))
    return attributes + (_stale(module, sound) if whole else [])


def _stale(module: nn.Module, sound: nn.Module) -> list[Attribute]:
    """Tables that a module formed in an earlier call and keeps beside its buffers, where they are not the config's."""
    kept = {n: t for n, t in vars(module).items() if isinstance(t, Tensor) and n not in vars(sound) and n != STATE}
    if not kept:
        return []
    far = vars(far_state(sound))
    wrong = [n for n, t in kept.items() if not isinstance(far.get(n), Tensor) or not torch.equal(t.cpu(), far[n])]
    return [Attribute(n, "kept from an earlier call, with other values", gone=True) for n in wrong]


def _short(value: Any) -> str:
    text = str(value.tolist() if isinstance(value, Tensor) else value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def _same(own: Any, value: Any) -> bool:
    return (
        isinstance(value, int) and own.numel() == 1 and int(own) == value if isinstance(own, Tensor) else own == value
    )
