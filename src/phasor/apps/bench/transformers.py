"""transformers' own functions, in their own mode: by cos and sin that exist, into new outputs."""

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from ...rotary.apply import apply_rotary_qk
from ...rotary.rotation import Rotation
from .case import Case, Setting, at_least
from .large import WIDTH, prefill
from .race import Calls
from .small import PLACE, TOKEN


def missing() -> str:
    return "" if find_spec("transformers") else "transformers is not installed; pip install 'phasor[hf]'"


def theirs(interleaved: bool) -> Callable[..., tuple[Tensor, Tensor]]:
    """Llama's function for halves, Cohere's for neighbours."""
    if interleaved:
        from transformers.models.cohere.modeling_cohere import apply_rotary_pos_emb
    else:
        from transformers.models.llama.modeling_llama import apply_rotary_pos_emb
    turn: Callable[..., tuple[Tensor, Tensor]] = apply_rotary_pos_emb
    return turn


def by_channel(table: Tensor, interleaved: bool) -> Tensor:
    """``[..., P]`` with every value twice, in the order of the pairs: ``[..., 2 P]``."""
    return table.repeat_interleave(2, -1) if interleaved else torch.cat((table, table), -1)


def doubled(setting: Setting, rotation: Rotation) -> list[Tensor]:
    """cos and sin ``[1, S, D]`` as models hand them over, in the dtype of q."""
    return [by_channel(t, setting.interleaved)[None].to(setting.dtype) for t in (rotation.cos, rotation.sin)]


def _beside(setting: Setting, q: Tensor, k: Tensor, positions: Tensor) -> Calls:
    rotation = setting.rotation(WIDTH, positions)
    return {
        "transformers": partial(theirs(setting.interleaved), q, k, *doubled(setting, rotation)),
        "phasor": partial(apply_rotary_qk, q, k, rotation, kernel=setting.kernel),
    }


def _prefill(setting: Setting) -> Calls:
    return _beside(setting, *prefill(setting))


def _token(setting: Setting) -> Calls:
    return _beside(setting, *setting.pair(1, 32, 8, 1, WIDTH), torch.tensor([PLACE]))


TRANSFORMERS = (
    Case(
        "transformers",
        "transformers' `apply_rotary_pos_emb` (Llama's; Cohere's for interleaved pairs) at the sizes of `prefill`, by "
        "tables that exist, in units of `apply_rotary_qk`",
        _prefill,
        measured="transformers",
        unit="phasor",
        goals=at_least(4.5),
        large=True,
        why_not=missing,
    ),
    Case(
        "transformers-token",
        f"the same for {TOKEN}",
        _token,
        measured="transformers",
        unit="phasor",
        goals=at_least(6),
        repeat=200,
        why_not=missing,
    ),
)
