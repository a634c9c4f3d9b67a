"""A config made small: as many layers as there are kinds, few heads and words, and the rotary factors untouched."""

import re
from typing import Any

# Key pattern -> the largest value that stays; the first pattern that matches counts. Widths of a head are kept, because
# they decide the rotation.
SIZES: list[tuple[str, int]] = [
    (r"theta|head_dim|head_size|rotary_dim|kv_channels|position|original|beta|scale|spatial_merge|temporal", 10**9),
    (r"vocab|codebook_size", 128),
    (r"upsample_groups", 64),
    (r"num_kv_shared_layers", 0),
    (r"expert_group", 1),
    (r"lora_rank|lowrank|_rank$", 32),
    (r"num_key_heads|num_value_heads|n_heads|num_heads|attention_heads|n_head$|linear_num_heads", 2),
    (r"intermediate|ffn|mlp|expert.*dim|expert.*size", 32),
    (r"topk_group|n_group$", 1),
    (r"experts_per_tok|topk|top_k|moe_k", 2),
    (r"experts", 4),
    (r"sliding_window", 8),
    (r"num_filters", 4),
    (r"num_mel_bins|patch_size", 16),
    (r"image_size", 64),
]
LAYERS = r"^(num_hidden_layers|n_layers?|num_layers|depth|(encoder|decoder)_layers|\w*_num_hidden_layers)$"
WIDTHS = r"^(hidden_size|d_model|n_embd|embed_dim|dim)$"
KV_HEADS = r"key_value_heads|kv_heads|n_head_kv|num_attention_groups"
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
DROPPED = ("transformers_version", "id2label", "label2id", "out_features", "out_indices", "stage_names", "_frame_rate")
KINDS = 4  # layers at most, unless there are more kinds


def shrink(data: dict[str, Any], width: int = 64) -> dict[str, Any]:
    """A copy of a config's dictionary for a tiny model. Lists per layer are sampled so that every kind stays."""
    data = {k: v for k, v in data.items() if isinstance(k, str) and k not in DROPPED}
    heads = next((data[n] for n in HEADS if isinstance(data.get(n), int)), 1)
    chosen = _layers(data)
    small: dict[str, Any] = {}
    for key, value in data.items():
        small[key] = value
        if key == "head_dim" and value is None and isinstance(data.get("hidden_size"), int):
            small[key] = data["hidden_size"] // heads
        elif isinstance(value, dict) and key == "per_layer_config":
            small[key] = {str(chosen.index(int(i))): v for i, v in value.items() if int(i) in chosen}
        elif isinstance(value, dict) and "rope" not in key and all(isinstance(k, str) for k in value):
            small[key] = shrink(value, width)
        elif isinstance(value, list) and chosen and len(value) == _count(data):
            small[key] = [value[i] for i in chosen]
        elif isinstance(value, bool) or not isinstance(value, int):
            continue
        elif re.search(KV_HEADS, key):
            small[key] = 2 if value % heads == 0 else 1
        elif re.search(WIDTHS, key):
            small[key] = width if data.get("head_dim") else value // heads * min(heads, 2)
        elif re.search(LAYERS, key):
            small[key] = len(chosen) if value == _count(data) else min(value, 2)
        elif value > 1:
            small[key] = _size(key, value)
    return _tokens(small)


def _count(data: dict[str, Any]) -> int:
    return next((v for k, v in data.items() if re.search(LAYERS, k) and isinstance(v, int)), 0)


def _layers(data: dict[str, Any]) -> list[int]:
    """Numbers of the layers that stay: the first of every kind, then the first ones."""
    count = _count(data)
    lists = [v for v in data.values() if isinstance(v, list) and len(v) == count]
    own = {int(i): repr(v) for i, v in (data.get("per_layer_config") or {}).items()}
    kinds: dict[Any, int] = {}
    for i in range(count):
        kinds.setdefault((repr([v[i] for v in lists]), own.get(i)), i)
    chosen = set(kinds.values())
    for i in range(count):
        if len(chosen) < KINDS:
            chosen.add(i)
    return sorted(chosen)


def _size(key: str, value: int) -> int:
    for pattern, size in SIZES:
        if re.search(pattern, key):
            return min(value, size)
    return value


def _tokens(data: dict[str, Any]) -> dict[str, Any]:
    """Numbers of special tokens inside the small vocabulary, different ones apart."""
    special = [k for k, v in data.items() if re.search(r"token_(id|index)s?$", k) and isinstance(v, int)]
    values = sorted({data[k] for k in special if data[k] > 99})
    return {k: 100 + values.index(v) if k in special and v > 99 else v for k, v in data.items()}
