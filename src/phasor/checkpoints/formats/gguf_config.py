"""The metadata of a GGUF file about a model of Llama's shape, and transformers' config for the same model.

Keys: github.com/ggml-org/ggml, ``docs/gguf.md``; what each holds for which key of transformers: llama.cpp's
``convert_hf_to_gguf.py``.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ...weights import Gguf
from .gguf_file import pair

# key after the architecture's name -> transformers' key
SIZES = {
    "block_count": "num_hidden_layers", "context_length": "max_position_embeddings", "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size", "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads", "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta", "attention.key_length": "head_dim",
}  # fmt: skip
# further keys that are checked, or say nothing about the weights
KNOWN = {"rope.dimension_count", "attention.value_length", "vocab_size", "rope.scaling.type", "rope.scaling.factor",
    "rope.scaling.original_context_length", "rope.scaling.finetuned", "attention.causal"}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3",
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}


def config_of(path: Path, metadata: Mapping[str, Any], row: Gguf, model_type: str, factors: Any) -> dict[str, Any]:
    """transformers' config. Raises ``ValueError`` for keys of the architecture that are not known, or missing.

    ``factors``: the tensor ``rope_freqs`` of Llama 3, or None.
    """
    said = {k.removeprefix(f"{row.arch}."): v for k, v in metadata.items() if k.startswith(f"{row.arch}.")}
    if unknown := sorted(said.keys() - SIZES.keys() - KNOWN):
        raise ValueError(
            f"{path}: {row.arch}.{unknown[0]}: is not known, and may change the model: {said[unknown[0]]!r}"
        )
    for key in ("block_count", "embedding_length", "attention.head_count"):
        if not isinstance(said.get(key), int) or isinstance(said[key], bool) or said[key] < 1:
            raise ValueError(f"{path}: {row.arch}.{key} must be a number from 1, got {said.get(key)!r}")
    config = {theirs: _shortest(said[ours]) for ours, theirs in SIZES.items() if said.get(ours) is not None}
    heads, width = config["num_attention_heads"], config["hidden_size"]
    head_dim = config.get("head_dim", width // heads)
    for key in ("rope.dimension_count", "attention.value_length"):
        if said.get(key, head_dim) != head_dim:
            raise ValueError(f"{path}: {row.arch}.{key} must be the width of a head, {head_dim}, got {said[key]}")
    config = {"model_type": model_type, "hidden_act": "silu", "rope_theta": 10_000.0, **config}
    kind = said.get("rope.scaling.type", "none")
    if kind == "linear":
        config["rope_scaling"] = {"rope_type": "linear", "factor": _shortest(said.get("rope.scaling.factor"))}
    elif kind != "none":
        raise ValueError(f"{path}: {row.arch}.rope.scaling.type must be none or linear here, got {kind!r}")
    if factors is not None:
        config["rope_scaling"] = _llama3(path, factors, config["rope_theta"], head_dim)
    for word in ("bos", "eos"):
        if isinstance(token := metadata.get(f"tokenizer.ggml.{word}_token_id"), int):
            config[f"{word}_token_id"] = token
    return config


def _shortest(value: Any) -> Any:
    """A number in float32 as people write it: 1e-05, not 9.999999747378752e-06."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _llama3(path: Path, factors: Any, base: float, head_dim: int) -> dict[str, Any]:
    """The scaling whose factors these are."""
    for factor in (8.0, 32.0):  # Llama 3.1, Llama 3.2
        if np.allclose(factors, llama3_factors(base, head_dim, factor), rtol=1e-5):
            return {**LLAMA3, "factor": factor}
    raise ValueError(f"{path}: rope_freqs.weight: must be the factors of Llama 3.1 or 3.2, and is not")


def llama3_factors(base: float, head_dim: int, factor: float) -> np.ndarray[Any, Any]:
    """What llama.cpp divides the frequencies of Llama 3 by, float32: 1 above, ``factor`` below, smooth in between."""
    low, high, length = 1.0, 4.0, 8192
    waves = 2 * math.pi * base ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    smooth = np.clip((length / waves - low) / (high - low), 0, 1)
    return (1 / ((1 - smooth) / factor + smooth)).astype(np.float32)


def metadata_of(path: Path, config: Mapping[str, Any], row: Gguf, vocab: int) -> tuple[bytes, int]:
    """The same the other way: the bytes of the metadata, and the number of values. No tokenizer."""
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    filled = {
        "rms_norm_eps": 1e-6, "max_position_embeddings": 2048, "num_key_value_heads": heads, **config,
        "rope_theta": rope.get("rope_theta", config.get("rope_theta", 10_000.0)), "head_dim": head_dim,
    }  # fmt: skip
    values: dict[str, Any] = {"general.architecture": row.arch}
    floats = ("rms_norm_eps", "rope_theta")
    for ours, theirs in SIZES.items():
        values[f"{row.arch}.{ours}"] = float(filled[theirs]) if theirs in floats else int(filled[theirs])
    values |= {f"{row.arch}.{k}": head_dim for k in ("attention.value_length", "rope.dimension_count")}
    values[f"{row.arch}.vocab_size"] = vocab
    scheme = rope.get("rope_type", rope.get("type", "default"))
    if scheme == "linear":
        values |= {f"{row.arch}.rope.scaling.type": "linear", f"{row.arch}.rope.scaling.factor": float(rope["factor"])}
    elif scheme not in ("default", "llama3"):
        raise ValueError(f"{path}: {scheme} scaling is not written to GGUF here; use llama.cpp's own converter")
    return b"".join(pair(key, value) for key, value in values.items()), len(values)


def factors_of(path: Path, config: Mapping[str, Any]) -> bytes:
    """The tensor ``rope_freqs`` that a config of Llama 3 needs; empty for others."""
    rope = {**(config.get("rope_scaling") or {}), **(config.get("rope_parameters") or {})}
    if rope.get("rope_type", rope.get("type")) != "llama3":
        return b""
    if any(rope.get(key) != value for key, value in LLAMA3.items()):
        raise ValueError(f"{path}: llama3 scaling must be that of Llama 3 for GGUF, got {rope!r:.200}")
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    base = rope.get("rope_theta", config.get("rope_theta", 10_000.0))
    return llama3_factors(base, head_dim, rope["factor"]).tobytes()
