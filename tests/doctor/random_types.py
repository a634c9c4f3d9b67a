"""Tiny models of many families, so that one diagnosis costs tenths of a second: a table, and one way to build them."""

from dataclasses import dataclass, field
from typing import Any

import torch
import transformers

LENGTH, SHORT = 160, 60  # declared, and the length from which a scaled encoding counts as long
SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": LENGTH, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
HEAD = {"head_dim": 16}
EXPERTS = {"moe_intermediate_size": 16, "num_experts_per_tok": 2}
MLA = {
    **EXPERTS, "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 16,
    "qk_nope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1,
}  # fmt: skip
WINDOW = {"sliding_window": 24}
OPT = {"hidden_size": 64, "num_attention_heads": 4}
FACTORS = {
    "short_factor": [1.0, 1.0, 1.0, 1.1, 1.1, 1.2, 1.2, 1.3],
    "long_factor": [1.0, 1.5, 2.0, 2.0, 3.0, 3.0, 4.0, 4.0],
}
ROPES: dict[str, dict[str, Any]] = {
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "yarn": {"factor": LENGTH / SHORT, "original_max_position_embeddings": SHORT},
    "llama3": {
        "factor": LENGTH / SHORT,
        "original_max_position_embeddings": SHORT,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
    "longrope": {"factor": LENGTH / SHORT, "original_max_position_embeddings": SHORT, **FACTORS},
}  # fmt: skip


@dataclass(frozen=True)
class Type:
    """``interleaved``: a pair lies in neighbouring channels of what was rotated; ``rope``: its scaling."""

    model_type: str
    changes: dict[str, Any] = field(default_factory=dict)
    interleaved: bool = False
    rope: str = "default"
    causal: bool = True
    without: tuple[str, ...] = ()  # sizes that its config does not know

    def build(self, layers: int, seed: int = 0) -> Any:
        """A model in evaluation mode, with weights so large that positions decide what is attended to."""
        sizes = {k: v for k, v in SIZES.items() if k not in self.without}
        changes = {k: v[:layers] if k in ("layer_types", "no_rope_layers") else v for k, v in self.changes.items()}
        if self.rope != "default":
            rope = {"rope_type": self.rope, "rope_theta": 10_000.0, **ROPES[self.rope]}
            changes = {"rope_parameters": rope, **changes}
        config = transformers.AutoConfig.for_model(self.model_type, **{**sizes, **changes, "num_hidden_layers": layers})
        kind = transformers.AutoModelForCausalLM if self.causal else transformers.AutoModelForMaskedLM
        torch.manual_seed(seed)
        model = kind.from_config(config).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.ndim > 1:
                    weight.normal_(0.0, (2.0 if "att" in name else 1.0) * weight.shape[-1] ** -0.5)
        return model


def _mixed(first: str = "sliding_attention") -> dict[str, Any]:
    other = "full_attention" if first == "sliding_attention" else "sliding_attention"
    return {"layer_types": [first, other, first], **WINDOW}


LOCAL = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
}
OLMO3 = {
    "full_attention": {"rope_type": "yarn", "rope_theta": 1e4, **ROPES["yarn"]},
    "sliding_attention": LOCAL["sliding_attention"],
}
NO_KV = ("num_key_value_heads",)
TYPES: dict[str, Type] = {
    "llama": Type("llama"),
    "llama linear": Type("llama", rope="linear"),
    "llama dynamic": Type("llama", {"max_position_embeddings": SHORT}, rope="dynamic"),
    "llama yarn": Type("llama", rope="yarn"),
    "llama llama3": Type("llama", rope="llama3"),
    "mistral": Type("mistral", WINDOW | HEAD),
    "qwen2": Type("qwen2"),
    "qwen2 yarn": Type("qwen2", rope="yarn"),
    "qwen3": Type("qwen3", HEAD),
    "qwen3_moe": Type("qwen3_moe", HEAD | EXPERTS | {"num_experts": 4}),
    "gemma": Type("gemma", HEAD),
    "gemma2": Type("gemma2", HEAD | _mixed()),
    "gemma3_text": Type("gemma3_text", HEAD | _mixed() | {"rope_parameters": LOCAL}),
    "olmo": Type("olmo"),
    "olmo2": Type("olmo2"),
    "olmo3": Type("olmo3", _mixed() | {"rope_parameters": OLMO3}),
    "exaone4": Type("exaone4", HEAD | _mixed()),
    "apertus": Type("apertus", HEAD, rope="llama3"),
    "phi": Type("phi", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}}),
    "phi3": Type("phi3"),
    "phi3 longrope": Type("phi3", {"original_max_position_embeddings": SHORT}, rope="longrope"),
    "glm": Type("glm", HEAD, interleaved=True),
    "glm4": Type("glm4", HEAD, interleaved=True),
    "cohere": Type("cohere", interleaved=True),
    "cohere2": Type("cohere2", HEAD | _mixed(), interleaved=True),
    "granite": Type("granite"),
    "gpt_neox": Type("gpt_neox", without=NO_KV),
    "gptj": Type(
        "gptj",
        {"rotary_dim": 8, "max_position_embeddings": 2 * LENGTH},
        interleaved=True,
        without=(*NO_KV, "intermediate_size"),
    ),
    "deepseek_v2": Type("deepseek_v2", MLA, interleaved=True),
    "deepseek_v3": Type("deepseek_v3", MLA),
    "deepseek_v3 yarn": Type("deepseek_v3", MLA, rope="yarn"),
    "stablelm": Type("stablelm"),
    "gpt_oss": Type("gpt_oss", HEAD | _mixed() | EXPERTS | {"num_local_experts": 4}, rope="yarn"),
    "minimax_m2": Type("minimax_m2", HEAD | {"num_local_experts": 4, "num_experts_per_tok": 2, "rotary_dim": 8}),
    "smollm3": Type("smollm3", {"no_rope_layers": [1, 0, 1]}),
    "nanochat": Type("nanochat"),
    "helium": Type("helium", HEAD, interleaved=True),
    "ernie4_5": Type("ernie4_5", HEAD, interleaved=True),
    "persimmon": Type("persimmon", without=NO_KV),
    "starcoder2": Type("starcoder2"),
    "falcon": Type("falcon", {"new_decoder_architecture": True, "num_kv_heads": 2, "alibi": False}, without=NO_KV),
    "mixtral": Type("mixtral", {"num_local_experts": 4}),
    "hunyuan_v1_dense": Type("hunyuan_v1_dense", HEAD),
    "seed_oss": Type("seed_oss", HEAD),
    "nemotron": Type("nemotron", HEAD),
    "modernbert": Type(
        "modernbert", {"layer_types": _mixed()["layer_types"], "local_attention": 24}, causal=False, without=NO_KV
    ),
}
