"""A transformers model whose attention is handed to an observer, with rotated q and k, for as long as a block takes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from phasor import RotarySpec
from phasor.tools.doctor.implementation import attending_by

NAME = "phasor_study"
Forward = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]  # q, k -> output [B, L, H, D] and weights [B, H, L, L]
See = Callable[[int, Tensor, Tensor, float, Forward], tuple[Tensor, Tensor]]


@contextmanager
def watched(model: nn.Module, see: See) -> Iterator[None]:
    """``see(layer, q, k, scale, forward)`` stands where the attention was; ``forward`` is the model's own, eager.

    Raises ``ValueError`` for a model that does not call its attention through transformers' list of functions.
    """
    from transformers.masking_utils import AttentionMaskInterface, eager_mask
    from transformers.modeling_utils import AttentionInterface

    def attention(module: Any, q: Tensor, k: Tensor, v: Tensor, attention_mask: Tensor | None, **options: Any) -> Any:
        own = sys.modules[type(module).__module__].eager_attention_forward
        scale = options.get("scaling") or q.shape[-1] ** -0.5
        return see(module.layer_idx, q, k, scale, lambda q, k: own(module, q, k, v, attention_mask, **options))

    AttentionInterface.register(NAME, attention)
    AttentionMaskInterface.register(NAME, eager_mask)
    try:
        with attending_by(model, NAME):
            yield
    finally:
        AttentionInterface._global_mapping.pop(NAME, None)
        AttentionMaskInterface._global_mapping.pop(NAME, None)


def taken_back(x: Tensor, spec: RotarySpec, frequencies: Tensor) -> Tensor:
    """``[..., L, D]``, rotated q or k at positions 0 to L - 1, rotated back by ``frequencies`` ``[pairs]``.

    The channels stay where the model's rotation wrote them.
    """
    layout = spec.layout.written()
    angles = torch.arange(x.shape[-2], dtype=torch.float64)[:, None] * frequencies.double()
    cos, sin = angles.cos().to(x), (-angles if spec.reverse else angles).sin().to(x)
    a, b = layout.split(x)
    rotated = layout.join(a * cos + b * sin, b * cos - a * sin)
    return layout.within(x, rotated)
