"""The configs and flags with which every engine's own code was run, and where the results stand."""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
# Beside the models of the demo: rope keys of published configs, and what their classes need to be built.
MORE = {
    "Qwen/Qwen3-30B-A3B": {
        "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "head_dim": 128, "hidden_size": 2048,
        "num_attention_heads": 32, "num_key_value_heads": 4, "num_hidden_layers": 48, "rope_theta": 1000000.0,
        "max_position_embeddings": 40960, "rope_scaling": None, "num_experts": 4,
    },
    "Qwen/Qwen2.5-7B-Instruct": {
        "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28,
        "num_key_value_heads": 4, "num_hidden_layers": 28, "rope_theta": 1000000.0, "max_position_embeddings": 32768,
        "use_sliding_window": False,
    },
    "mistralai/Mixtral-8x7B-v0.1": {
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 4096,
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "rope_theta": 1000000.0,
        "max_position_embeddings": 32768, "sliding_window": None,
    },
    "Qwen/Qwen3.5-27B": {
        "architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "text_config": {
            "model_type": "qwen3_5_text", "hidden_size": 5120, "num_attention_heads": 24, "num_key_value_heads": 4,
            "head_dim": 256, "num_hidden_layers": 64, "full_attention_interval": 4, "max_position_embeddings": 262144,
            "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
            "linear_num_value_heads": 48, "linear_value_head_dim": 128,
            "rope_parameters": {"mrope_interleaved": True, "mrope_section": [11, 11, 10], "rope_type": "default",
                                "rope_theta": 10000000, "partial_rotary_factor": 0.25},
        }, "vision_config": {"model_type": "qwen3_5"},
    },
    "microsoft/phi-4": {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 5120, "num_attention_heads": 40,
        "num_key_value_heads": 10, "num_hidden_layers": 40, "rope_theta": 250000, "max_position_embeddings": 16384,
        "original_max_position_embeddings": 16384, "rope_scaling": None, "sliding_window": None,
    },
    "google/gemma-2-9b-it": {
        "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "head_dim": 256, "hidden_size": 3584,
        "num_attention_heads": 16, "num_key_value_heads": 8, "num_hidden_layers": 42, "rope_theta": 10000.0,
        "max_position_embeddings": 8192, "sliding_window": 4096, "query_pre_attn_scalar": 256,
    },
    "moonshotai/Kimi-K2-Instruct": {
        "architectures": ["DeepseekV3ForCausalLM"], "model_type": "kimi_k2", "hidden_size": 7168,
        "num_attention_heads": 64, "num_key_value_heads": 64, "num_hidden_layers": 61, "q_lora_rank": 1536,
        "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "n_group": 1,
        "topk_group": 1, "rope_theta": 50000.0, "max_position_embeddings": 131072,
        "rope_scaling": {"type": "yarn", "beta_fast": 1.0, "beta_slow": 1.0, "factor": 32.0, "mscale": 1.0,
                         "mscale_all_dim": 1.0, "original_max_position_embeddings": 4096},
    },
    "zai-org/GLM-4.5": {
        "architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "hidden_size": 5120, "head_dim": 128,
        "num_attention_heads": 96, "num_key_value_heads": 8, "num_hidden_layers": 92, "rope_theta": 1000000,
        "partial_rotary_factor": 0.5, "max_position_embeddings": 131072, "rope_scaling": None,
    },
    "allenai/Olmo-3.1-32B": {
        "architectures": ["Olmo3ForCausalLM"], "model_type": "olmo3", "hidden_size": 5120, "num_attention_heads": 40,
        "num_key_value_heads": 8, "num_hidden_layers": 64, "max_position_embeddings": 65536, "rope_theta": 500000,
        "sliding_window": 4096, "rope_scaling": {
            "rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192, "beta_fast": 32.0,
            "beta_slow": 1.0, "attention_factor": 1.2079441541679836},
    },
    "LongRoPE of Phi-3, shortened": {
        "architectures": ["Phi3ForCausalLM"], "model_type": "phi3", "hidden_size": 64, "num_attention_heads": 4,
        "num_key_value_heads": 4, "num_hidden_layers": 2, "rope_theta": 10000.0, "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096, "sliding_window": None,
        "rope_scaling": {"type": "longrope", "short_factor": [1.0, 1.02, 1.03, 1.03, 1.05, 1.05, 1.05, 1.05],
                         "long_factor": [1.08, 1.11, 1.14, 1.34, 1.59, 1.60, 1.62, 2.64]},
    },
}  # fmt: skip


@cache
def configs() -> dict[str, dict[str, Any]]:
    """Name -> config: the models of the demo and those above."""
    demo = json.loads((files("phasor_lab.demo") / "models.json").read_text(encoding="utf-8"))
    found = {**{name: entry["config"] for name, entry in demo.items()}, **MORE}
    llama4 = found["meta-llama/Llama-4-Maverick"]  # whose text keys stand at the top as well
    only = {
        key: llama4[key] for key in ("architectures", "model_type", "text_config", "vision_config") if key in llama4
    }
    return {**found, "meta-llama/Llama-4-Maverick": only}


def save(name: str, about: dict[str, Any], cases: list[dict[str, Any]]) -> None:
    """Write what an engine's own code gave, frequencies with nine digits: float32 values, exactly."""
    lines = ",\n".join(f"  {json.dumps(case)}" for case in cases)
    head = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in about.items())
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{name}.json").write_text(f'{{\n{head},\n "cases": [\n{lines}\n ]\n}}\n', encoding="utf-8")


def layer(frequencies: Any, factor: float) -> dict[str, Any]:
    """Frequencies in radians per position, and the factor on cos and sin."""
    return {"inv_freq": [float(f"{f:.9g}") for f in frequencies], "factor": float(f"{factor:.7g}")}
