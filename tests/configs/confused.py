"""What people confuse: names for one notion, schemes, keys inside rope parameters, and values near the right ones."""

import copy
import re
from collections.abc import Callable
from random import Random
from typing import Any

ROPE = ("rope_parameters", "rope_scaling")
SCHEMES: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "ntk": {"factor": 4.0},
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 4096},
    "llama3": {
        "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192,
    },
    "longrope": {"short_factor": [1.0] * 64, "long_factor": [4.0] * 64, "original_max_position_embeddings": 4096},
    "proportional": {"partial_rotary_factor": 0.5},
    "mrope": {"mrope_section": [16, 24, 24]},
    "su": {"short_factor": [1.0] * 64, "long_factor": [4.0] * 64},
    "nonsense": {"factor": 2.0},
}  # fmt: skip
INSIDE = {
    "factor": [2.0, 32.0, 0.5], "attention_factor": [1.0, 0.7], "beta_fast": [16, 1], "beta_slow": [2], "mscale": [0.7],
    "mscale_all_dim": [1.0, 0.0], "truncate": [False, None], "original_max_position_embeddings": [1, 4096, 10**6],
    "max_position_embeddings": [2048], "partial_rotary_factor": [0.5, 1.0], "rope_theta": [500000.0, 10000.0],
    "mrope_section": [[16, 24, 24], [8, 12, 12]], "mrope_interleaved": [True, False], "low_freq_factor": [2.0],
    "high_freq_factor": [8.0], "type": ["linear", "default", "yarn"], "rope_type": ["linear", "default", "dynamic"],
    "short_factor": [[1.5] * 64], "long_factor": [[2.5] * 64], "head_dim": [32], "rope_foo": [1], "finetuned": [True],
}  # fmt: skip
# Words for one notion: families differ in which of them they read.
SYNONYMS = (
    ("rope_theta", "rotary_emb_base", "rotary_base", "rope_base", "base", "theta", "global_rope_theta",
     "rope_freq_base"),
    ("rope_local_base_freq", "local_rope_theta", "swa_rope_theta", "compress_rope_theta"),
    ("partial_rotary_factor", "rotary_pct", "rotary_percent", "rotary_emb_fraction", "rope_pct", "rotary_dim"),
    ("head_dim", "kv_channels", "attention_head_dim", "swa_head_dim", "global_head_dim", "attention_head_size",
     "d_head", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "qk_head_dim"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads", "swa_num_attention_heads"),
    ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_global_key_value_heads"),
    ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "depth", "encoder_layers"),
    ("hidden_size", "n_embd", "d_model", "dim", "embed_dim"),
    ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "max_sequence_length", "n_ctx",
     "original_max_position_embeddings"),
    ("layer_types", "layers_block_type", "no_rope_layers", "full_attn_idxs", "attn_layer_indices"),
    ("sliding_window_pattern", "layer_group_size", "full_attention_interval", "no_rope_layer_interval",
     "global_attn_every_n_layers"),
    ("rope_scaling", "rope_parameters", "rope_config", "rotary_scaling", "rope_params"),
    ("type", "rope_type", "scaling_type"),
)  # fmt: skip
ROTARY = re.compile(
    r"(?<!p)rope|rotary|theta|nope|alibi|partial|layer_types|yarn|ntk|base_freq|kv_channels|head_dim|pattern|pos_enc|idxs"
)
LAYERS = ("full_attention", "sliding_attention", "linear_attention", "chunked_attention", "conv", "mamba", "attention")


def near(random: Random, value: Any) -> Any:
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    if is_number(value):
        return random.choice((value * 2, value // 2 if isinstance(value, int) else value / 2, value + 1, value * 10))
    if isinstance(value, list) and value:
        new = list(value)
        at = random.randrange(len(new))
        changes: tuple[Callable[[], Any], ...] = (
            lambda: new[::-1],
            lambda: new[:-1],
            lambda: [*new, new[-1]],
            lambda: [
                *new[:at],
                random.choice(LAYERS) if isinstance(new[at], str) else near(random, new[at]),
                *new[at + 1 :],
            ],
        )
        return random.choice(changes)()
    if isinstance(value, dict) and value:
        new_dict = copy.deepcopy(value)
        key = random.choice(sorted(new_dict, key=str))
        new_dict[key] = near(random, new_dict[key])
        return new_dict
    if isinstance(value, str):
        return random.choice((*LAYERS, *SCHEMES, "rotary", "rope", "absolute", "alibi", value + "x"))
    return random.choice([None, 0.5, 64, 500000.0, True, [16, 24, 24], {"rope_type": "linear", "factor": 4.0}])


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 120 else f"{text[:110]}…"
