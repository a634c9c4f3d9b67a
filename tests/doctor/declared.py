"""The models of `train_readings` as folders that transformers loads, each with a config that declares something."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from .train_readings import MODEL, TRUTHS, whole

HERE = Path(__file__).parent / "trained"
LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 256, "hidden_size": MODEL.dim,
    "intermediate_size": MODEL.hidden, "num_hidden_layers": MODEL.layers, "num_attention_heads": MODEL.heads,
    "num_key_value_heads": MODEL.heads, "head_dim": MODEL.head_dim, "hidden_act": "silu", "rms_norm_eps": 1e-5,
    "max_position_embeddings": MODEL.length, "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False,
    "mlp_bias": False, "tie_word_embeddings": True, "bos_token_id": None, "eos_token_id": None, "pad_token_id": None,
}  # fmt: skip
PHI = {**LLAMA, "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "partial_rotary_factor": 0.25}
LINEAR = {"rope_type": "linear", "factor": 4.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
TRUE: dict[str, dict[str, Any]] = {
    "plain": {}, "high_base": {"rope_theta": 500000.0}, "linear": {"rope_scaling": LINEAR},
    "yarn": {"rope_scaling": YARN}, "partial": {"partial_rotary_factor": 0.25},
}  # fmt: skip


def folder(name: str, changes: dict[str, Any], path: Path, swap: bool = False, trained: Path = HERE) -> Path:
    """The weights of a trained model beside a config with ``changes``; ``swap``: its pairs lie in the other layout.

    A model that was trained interleaved is stored so, under a class that reads halves.
    """
    state = whole(load_file(trained / f"{name}.safetensors"))
    if swap:
        state = {key: _swapped(t) if "q_proj" in key or "k_proj" in key else t for key, t in state.items()}
    like = LLAMA
    if name == "partial":  # transformers' Llama turns whole heads; its Phi-3 is the same model otherwise
        like, state = PHI, _fused(state)
    path.mkdir(parents=True)
    save_file({key: t.contiguous() for key, t in state.items()}, path / "model.safetensors", {"format": "pt"})
    (path / "config.json").write_text(json.dumps({**like, **changes}), encoding="utf-8")
    return path


def _swapped(weight: torch.Tensor) -> torch.Tensor:
    """Rows of halves as interleaved ones."""
    return weight.view(MODEL.heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _fused(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    kept = {key: t for key, t in state.items() if not any(p in key for p in ("q_proj", "k_proj", "v_proj", "_proj.w"))}
    for i in range(MODEL.layers):
        at = f"model.layers.{i}."
        kept[f"{at}self_attn.qkv_proj.weight"] = torch.cat([state[f"{at}self_attn.{x}_proj.weight"] for x in "qkv"])
        both = [state[f"{at}mlp.{x}_proj.weight"] for x in ("gate", "up")]
        kept[f"{at}mlp.gate_up_proj.weight"] = torch.cat(both)
        for same in ("self_attn.o_proj.weight", "mlp.down_proj.weight"):
            kept[at + same] = state[at + same]
    return kept


__all__ = ["TRUE", "TRUTHS", "folder"]
