"""Tiny GGUF files for llama.cpp: models whose keys before rotation are known, one layer of weights per architecture."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np

from phasor_serve.engines.gguf import Metadata

HALVES = ("qwen3", "gemma3", "phi3", "gpt-oss", "qwen2", "qwen3moe")
LATENT, WIDTH = "deepseek2", 64  # of its latent, its embedding, and each half of a head


def write(path: Path, meta: Metadata, head: int, turning: int, blocks: int) -> None:
    """A model of this architecture with two query heads and one key head, whose keys before rotation are known."""
    gguf = importlib.import_module("gguf")
    arch, width = meta.arch.name, 2 * head
    writer = gguf.GGUFWriter(str(path), arch)
    keys: dict[str, Any] = {
        "block_count": blocks, "embedding_length": width, "feed_forward_length": 32, "attention.head_count": 2,
        "attention.head_count_kv": 1, "attention.layer_norm_rms_epsilon": 1e-12, "vocab_size": 8,
        "attention.key_length": head, "attention.value_length": head, "attention.sliding_window": 16,
        "expert_count": 2, "expert_used_count": 1, "expert_feed_forward_length": 32, **meta.keys,
    }  # fmt: skip
    if arch == LATENT:
        keys |= latent_keys()
    elif arch not in ("gpt-oss", "qwen3moe"):
        keys = {key: value for key, value in keys.items() if "expert" not in key}
    writer.add_string("tokenizer.ggml.model", "no_vocab")
    for key, value in keys.items():
        add = writer.add_string if isinstance(value, str) else writer.add_float32
        (writer.add_uint32 if isinstance(value, int) else add)(f"{arch}.{key}", value)
    for name, values in tensors(meta, head, turning, blocks).items():
        writer.add_tensor(f"{name}", np.ascontiguousarray(values, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(meta: Metadata, head: int, turning: int, blocks: int) -> dict[str, Any]:
    arch, width, q = meta.arch.name, WIDTH if meta.arch.name == LATENT else 2 * head, 2 * head
    first = np.zeros(head)
    first[np.arange(turning // 2) if arch in HALVES else np.arange(0, turning, 2)] = 1
    keys = np.zeros((head, width))
    keys[:, 0] = first
    none, ones = np.zeros((q, width)), np.ones(width)
    found: dict[str, Any] = {"token_embd.weight": np.ones((8, width)), "output_norm.weight": ones,
                             "output.weight": np.ones((8, width))}  # fmt: skip
    for name, values in (
        ("rope_freqs", meta.freqs),
        ("rope_factors_long", meta.long),
        ("rope_factors_short", meta.short),
    ):
        if values:
            found[f"{name}.weight"] = np.array(values)
    for block in range(blocks):
        own = {"attn_norm": ones, "attn_q": none, "attn_k": keys, "attn_v": np.zeros((head, width)),
               "attn_output": np.zeros((width, q)), "ffn_norm": ones, "ffn_gate": np.zeros((32, width)),
               "ffn_up": np.zeros((32, width)), "ffn_down": np.zeros((width, 32))}  # fmt: skip
        if arch == LATENT:
            own = latent_layer()
        if arch in ("qwen3", "gemma3"):
            own |= {"attn_q_norm": np.ones(head), "attn_k_norm": np.full(head, (turning / 2 / head) ** 0.5)}
        if arch == "gemma3":
            own |= {"post_attention_norm": ones, "post_ffw_norm": ones}
        if arch == "phi3":
            own["attn_qkv"] = np.concatenate((own.pop("attn_q"), own.pop("attn_k"), own.pop("attn_v")))
            own |= {"ffn_up": np.zeros((64, width))}
            del own["ffn_gate"]
        biases = {"attn_q.bias": np.zeros(q), "attn_k.bias": np.zeros(head), "attn_v.bias": np.zeros(head)}
        if arch == "qwen2":
            found |= {f"blk.{block}.{name}": values for name, values in biases.items()}
        if arch == "gpt-oss":
            own["post_attention_norm"] = own.pop("ffn_norm")
            own |= {"ffn_gate_exps": np.zeros((2, 32, width)), "ffn_up_exps": np.zeros((2, 32, width)),
                    "ffn_down_exps": np.zeros((2, width, 32)), "ffn_gate_inp": np.zeros((2, width)),
                    "attn_sinks": np.zeros(2)}  # fmt: skip
            for name in ("ffn_gate", "ffn_up", "ffn_down"):
                del own[name]
            biases |= {"attn_output.bias": np.zeros(width), "ffn_gate_inp.bias": np.zeros(2),
                       "ffn_gate_exps.bias": np.zeros((2, 32)), "ffn_up_exps.bias": np.zeros((2, 32)),
                       "ffn_down_exps.bias": np.zeros((2, width))}  # fmt: skip
            found |= {f"blk.{block}.{name}": values for name, values in biases.items()}
        found |= {f"blk.{block}.{name}.weight": values for name, values in own.items()}
    return found


def latent_keys() -> dict[str, Any]:
    """Sizes of a model with latent attention: one head of keys, the latent and the 64 channels that turn."""
    return {
        "embedding_length": WIDTH, "attention.key_length": 2 * WIDTH, "attention.value_length": WIDTH,
        "attention.key_length_mla": 2 * WIDTH, "attention.value_length_mla": WIDTH, "attention.kv_lora_rank": WIDTH,
        "attention.q_lora_rank": 16, "leading_dense_block_count": 1, "expert_shared_count": 1,
        "expert_weights_scale": 1.0, "expert_gating_func": 2,
    }  # fmt: skip


def latent_layer() -> dict[str, Any]:
    """Its weights; the channels that turn stand last in the cache, and hold 1 and 0 in each pair before they do."""
    keys = np.zeros((2 * WIDTH, WIDTH))
    keys[WIDTH::2, 0] = 1
    none, ones = np.zeros((WIDTH, WIDTH)), np.ones(WIDTH)
    return {
        "attn_norm": ones, "attn_q_a": none[:16], "attn_q_a_norm": ones[:16], "attn_q_b": np.zeros((4 * WIDTH, 16)),
        "attn_kv_a_mqa": keys, "attn_kv_a_norm": ones, "attn_k_b": np.zeros((2, WIDTH, WIDTH)),
        "attn_v_b": np.zeros((2, WIDTH, WIDTH)), "attn_output": np.zeros((WIDTH, 2 * WIDTH)), "ffn_norm": ones,
        "ffn_gate": none[:32], "ffn_up": none[:32], "ffn_down": np.zeros((WIDTH, 32)),
    }  # fmt: skip
