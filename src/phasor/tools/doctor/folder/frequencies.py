"""Frequencies that are stored with the weights, beside those of the config."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from ...checkpoints.stored import Stored
from ...checkpoints.torch_types import as_torch
from ...patch.damage import damage
from ..against_config.rotary_module import ladders
from ..model_folder import ModelConfig
from ..report import Check
from .faults import fault

OTHER = "stored frequencies of another encoding"
DTYPES = ("F32", "F16", "BF16", "F64")


def stored_frequencies(tensors: Mapping[str, Stored]) -> dict[str, Tensor]:
    """Buffers of inverse frequencies among the weights, by name."""
    kept = {n: t for n, t in tensors.items() if n.endswith("inv_freq") and len(t.shape) == 1 and t.size}
    return {name: as_torch(stored) for name, stored in kept.items() if stored.dtype in DTYPES}


def check_frequencies(config: ModelConfig, stored: Mapping[str, Tensor], in_force: bool) -> Iterator[Check]:
    """What is wrong with stored frequencies.

    ``in_force``: whether the model's code reads them from the weights. Code that forms them itself leaves them nothing
    to say but what the config says.
    """
    known = [form for spec in config.specs for form in ladders(spec)]
    for name, own in stored.items() if known else ():
        if any(torch.equal(own.to(f.dtype), f) for f in known if f.shape == own.shape and own.dtype == f.dtype):
            continue
        same = [f for f in known if f.shape == own.shape]
        rounded = [f for f in same if _is(own, f)]
        chosen = rounded or (same if len(same) == 1 else [])
        wrong = damage(own, chosen[0]) if chosen else None
        understood = wrong is not None and wrong.understood
        words = wrong.words if wrong is not None else "of a shape that the config does not give"
        cause = f"stored frequencies {words}" if understood else OTHER
        if chosen and (understood or not in_force):
            way_out = "store those of the config, or none: the config says them"
        else:
            way_out = "the model reads them, so either they or the config are right; --text FILE tells which"
        yield fault(name, f"stored frequencies are {words}", cause, way_out)


def _is(own: Tensor, sound: Tensor) -> bool:
    """Whether these are the frequencies of a spec, of as many pairs, but for a rounding."""
    fault = damage(own, sound)
    return fault is None or fault.words.startswith(("rounded", "in "))
