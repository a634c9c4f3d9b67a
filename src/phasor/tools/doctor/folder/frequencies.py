"""Frequencies that are stored with the weights, beside those of the config."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ....models.configs import ModelRotary, read_parts
from ....rotary.spec import RotarySpec
from ....support.regular_files import opened
from ...checkpoints.opening import read_at
from ...checkpoints.stored import Stored
from ...patch.damage import damage
from ...patch.reading import specs_of
from ..against_config.rotary_module import ladders
from .finding import FolderFault

OTHER = "stored frequencies of another encoding"
DTYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}


def stored_frequencies(tensors: Mapping[str, Stored]) -> dict[str, Tensor]:
    """Buffers of inverse frequencies among the weights, by name."""
    frequencies = {n: _values(t) for n, t in tensors.items() if n.endswith("inv_freq") and len(t.shape) == 1}
    return {name: tensor for name, tensor in frequencies.items() if tensor is not None}


def specs_in(config: Any) -> list[RotarySpec]:
    """Every rotation that a config describes, with its model's own angles; none where it is not understood."""
    try:
        parts = read_parts(config).values()
    except ValueError:
        return []
    return specs_of([part.with_angles("float32") for part in parts if isinstance(part, ModelRotary)])


def fitting(config: Any, stored: Mapping[str, Tensor]) -> int:
    """How many of the stored frequencies are those of a config, exactly or rounded."""
    known = [f for spec in specs_in(config) for f in ladders(spec)]
    return sum(any(_is(own, f) for f in known) for own in stored.values())


def check_frequencies(
    config: Any, stored: Mapping[str, Tensor], in_force: bool
) -> tuple[list[FolderFault], dict[str, Tensor]]:
    """What is wrong with stored frequencies, and the values of those that can be mended.

    ``in_force``: whether the model's code reads them from the weights. Code that forms them itself leaves them nothing
    to say but what the config says.
    """
    findings: list[FolderFault] = []
    mended: dict[str, Tensor] = {}
    known = [f for spec in specs_in(config) for f in ladders(spec)]
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
            mended[name] = chosen[0].clone()
            findings.append(FolderFault(name, f"stored frequencies are {words}", cause, "formed anew from the config"))
        else:
            way_out = "the model reads them, so either they or the config are right; --text FILE tells which"
            findings.append(FolderFault(name, f"stored frequencies are {words}", cause, way_out=way_out))
    return findings, mended


def _is(own: Tensor, sound: Tensor) -> bool:
    """Whether these are the frequencies of a spec, but for a rounding."""
    if own.shape != sound.shape:
        return False
    fault = damage(own, sound)
    return fault is None or fault.words.startswith(("rounded", "in "))


def _values(stored: Stored) -> Tensor | None:
    """A small tensor of floats; None for other dtypes."""
    dtype = DTYPES.get(stored.dtype)
    if dtype is None or not math.prod(stored.shape):
        return None
    with opened(stored.file) as fd:
        data = read_at(fd, stored.offset, stored.size, stored.file)
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(stored.shape)
