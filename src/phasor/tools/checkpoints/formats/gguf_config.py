"""The metadata of a GGUF file about a model of Llama's shape, and transformers' config for the same model.

Keys: github.com/ggml-org/ggml, ``docs/gguf.md``; what each holds for which key of transformers: llama.cpp's
``convert_hf_to_gguf.py``.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ....models.weights import Gguf
from ....rotary.scaling import Llama3
from ....rotary.spec import RotarySpec
from .gguf_file import pair
from .plain import LENGTH, LLAMA3, is_llama3, needed, rope_of

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
    """What llama.cpp divides the frequencies of Llama 3 by, float32."""
    plain = RotarySpec(head_dim=head_dim, base=base)
    scaling = Llama3(
        factor, LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"], LLAMA3["original_max_position_embeddings"]
    )
    scaled = plain.replace(scaling=scaling)
    found: np.ndarray[Any, Any] = (plain.inv_freq() / scaled.inv_freq()).numpy().astype(np.float32)
    return found


def metadata_of(path: Path, config: Mapping[str, Any], row: Gguf, vocab: int) -> dict[str, bytes]:
    """The same the other way: key -> its bytes, with those of its value. No tokenizer."""
    rope = rope_of(path, config)
    said = {
        "max_position_embeddings": LENGTH, **config, "rope_theta": float(rope["rope_theta"]),
        "rms_norm_eps": float(needed(path, config, "rms_norm_eps")),
    }  # fmt: skip
    values = {
        "general.architecture": row.arch,
        **{f"{row.arch}.{ours}": said[theirs] for ours, theirs in SIZES.items()},
    }
    values |= {f"{row.arch}.{k}": config["head_dim"] for k in ("attention.value_length", "rope.dimension_count")}
    values[f"{row.arch}.vocab_size"] = vocab
    if rope["rope_type"] == "linear":
        values |= {f"{row.arch}.rope.scaling.type": "linear", f"{row.arch}.rope.scaling.factor": float(rope["factor"])}
    elif rope["rope_type"] not in ("default", "llama3"):
        raise ValueError(
            f"{path}: {rope['rope_type']} scaling is not written to GGUF here; use llama.cpp's own converter"
        )
    return {key: pair(key, value) for key, value in values.items()}


def factors_of(path: Path, config: Mapping[str, Any]) -> bytes:
    """The tensor ``rope_freqs`` that a config of Llama 3 needs; empty for others."""
    rope = rope_of(path, config)
    if rope["rope_type"] != "llama3":
        return b""
    if not is_llama3(rope):
        raise ValueError(f"{path}: llama3 scaling must be that of Llama 3 for GGUF, {LLAMA3}; got {rope!r:.200}")
    return llama3_factors(rope["rope_theta"], config["head_dim"], rope["factor"]).tobytes()
