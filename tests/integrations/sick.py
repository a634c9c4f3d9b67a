"""Small models, and what happens to the buffers of models in the wild."""

from typing import Any

import torch
from torch import nn

from .models import causal

SHORT, LONG = [1.1] * 8, [3.0] * 8
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "gemma3": ("gemma3", {}),  # frequencies of two kinds of layers, and a scale of the embedding that nothing stores
    "deepseek_v3, yarn": (
        "deepseek_v3",
        {
            "rope_parameters": {
                "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64,
                "mscale": 1.0, "mscale_all_dim": 1.0,
            }
        },
    ),
    "phi3, longrope": (
        "phi3",
        {
            "rope_parameters": {
                "rope_type": "longrope", "rope_theta": 1e4, "short_factor": SHORT, "long_factor": LONG,
                "original_max_position_embeddings": 256,
            }
        },
    ),
    "gptj": ("gptj", {"rotary_dim": 8}),  # a table that is kept, in every layer before transformers 5.24
}  # fmt: skip


def healthy(kind: str, **more: Any) -> Any:
    family, changes = KINDS[kind]
    return causal(family, **{**changes, **more})


def in_dtype(kind: str, dtype: torch.dtype) -> Any:
    """With weights in that dtype and buffers as they are: as from_pretrained, and not as from_config (GPT-J)."""
    model = healthy(kind)
    for parameter in model.parameters():
        parameter.data = parameter.data.to(dtype)
    return model


def to_bfloat16(model: Any) -> Any:
    return model.to(torch.bfloat16)


def to_half(model: Any) -> Any:
    return model.half()


def emptied(model: Any, fill: float = 1.7e17) -> Any:
    """``to_empty`` and the weights loaded again. What memory holds then is chance, so it is made certain."""
    weights = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    model.to_empty(device="cpu")
    for module in model.modules():
        for buffer in module._buffers.values():
            if buffer is not None and buffer.is_floating_point():
                buffer.fill_(fill)
    model.load_state_dict(weights)
    return model


def on_meta(model: Any) -> Any:
    """Built on the meta device, and the weights put into it."""
    with torch.device("meta"):
        empty = type(model)(model.config)
    empty.load_state_dict(model.state_dict(), assign=True)
    empty.tie_weights()
    return empty.eval()


DAMAGES = {"bfloat16": to_bfloat16, "float16": to_half, "to_empty": emptied, "meta": on_meta}
DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}


def buffers(model: nn.Module) -> dict[str, torch.Tensor]:
    """All that its state_dict leaves out."""
    return {n: b for n, b in model.named_buffers() if n not in model.state_dict()}
