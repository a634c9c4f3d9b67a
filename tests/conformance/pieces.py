"""Random words and numbers, and models that are run part by part."""

from typing import Any

import torch
from torch import Tensor

from .tiny import _tensors

made = torch.Generator().manual_seed(0)


def noise(*shape: int) -> Tensor:
    return torch.randn(shape, generator=made)


def words(*shape: int) -> Tensor:
    return torch.randint(3, 90, shape, generator=made)


def memory(model: Any) -> list[Tensor]:
    attention = model.memory_attention
    tokens, width = (
        attention.rotary_emb(noise(1, 1), attention.position_ids)[0].shape[-2],
        model.config.memory_attention_hidden_size,
    )
    inner = attention.layers[0].cross_attn_image.k_proj.in_features
    extra = {"num_spatial_memory_tokens": 1} if hasattr(attention, "position_ids_k") else {}
    keys = attention.position_ids_k.shape[-2] if extra else tokens
    return _tensors(
        attention(
            noise(tokens, 1, width), noise(keys, 1, inner), noise(tokens, 1, width), noise(keys, 1, inner), **extra
        )
    )


def decoder(model: Any) -> list[Tensor]:
    return _tensors(model.acoustic_decoder(noise(1, 12, model.acoustic_decoder.fc.in_features)))


def parts_of_omni(model: Any) -> list[Tensor]:
    """Qwen2.5-Omni has no forward of its own: its thinker, then its talker."""
    talker = {"inputs_embeds": noise(2, 12, model.talker.config.embedding_size)}
    return [*_tensors(model.thinker(input_ids=words(2, 12))), *_tensors(model.talker(**talker))]


def words_and_waves(model: Any) -> list[Tensor]:
    """Qwen3-Omni has no forward of its own: its thinker, then the transformer before its waves."""
    waves = model.code2wav.pre_transformer
    states = noise(2, 12, waves.config.hidden_size)
    return [*_tensors(model.thinker(input_ids=words(2, 12))), *_tensors(waves(inputs_embeds=states))]


def after_words(model: Any) -> list[Tensor]:
    """PI0: actions that see the keys and values of words."""
    seen = model.vlm(input_ids=words(1, 12), use_cache=True)
    actions = noise(1, 4, model.config.dit_config.hidden_size)
    return [*_tensors(seen[0]), *_tensors(model(action_embeds=actions, cache=seen.cache)[0])]
