"""Six tiny families, each with a base that is not its class's and with YaRN, so that every fault can show."""

import copy
from typing import Any

import torch
import transformers
from torch import nn

BASE, TRAINED = 50_000.0, 64
YARN = {"rope_type": "yarn", "rope_theta": BASE, "factor": 8.0, "original_max_position_embeddings": TRAINED}
SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "head_dim": 16, "initializer_range": 0.2,
}  # fmt: skip
MLA = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 16, "qk_nope_head_dim": 8,
    "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
LOCAL = {"rope_type": "default", "rope_theta": 10_000.0}
VISION = {"depth": 1, "embed_dim": 32, "num_heads": 2, "hidden_size": 64, "patch_size": 4, "mlp_ratio": 2}


def config_of(family: str, **rope: Any) -> Any:
    """The config of a family; ``rope`` changes its rope parameters (None takes a key away)."""
    yarn = {k: v for k, v in {**YARN, **rope}.items() if v is not None}
    if family == "llama":
        return transformers.LlamaConfig(**SIZES, rope_parameters=yarn)
    if family == "qwen3":
        return transformers.Qwen3Config(**SIZES, rope_parameters=yarn)
    if family == "gemma3":
        both = {"full_attention": yarn, "sliding_attention": LOCAL}
        types = ["sliding_attention", "full_attention"]
        return transformers.Gemma3TextConfig(**SIZES, layer_types=types, rope_parameters=both)
    if family == "glm4":
        return transformers.Glm4Config(
            **{**SIZES, "head_dim": 32},
            partial_rotary_factor=0.5,
            rope_parameters={**yarn, "partial_rotary_factor": 0.5},
        )
    if family == "deepseek_v3":
        sizes = {k: v for k, v in SIZES.items() if k != "head_dim"}
        return transformers.DeepseekV3Config(**{**sizes, **MLA}, rope_parameters=yarn)
    text = {**SIZES, "rope_parameters": {**yarn, "mrope_section": rope.get("mrope_section", [2, 3, 3])}}
    text.pop("head_dim")
    return transformers.Qwen2VLConfig(
        text_config=text, vision_config=VISION, image_token_id=90, video_token_id=91, vision_start_token_id=92
    )


FAMILIES = ("llama", "qwen3", "gemma3", "glm4", "deepseek_v3", "qwen2_vl")


def model_of(family: str, config: Any = None) -> Any:
    """A model with random weights, in evaluation mode."""
    config = config_of(family) if config is None else config
    torch.manual_seed(1)
    if family == "qwen2_vl":
        return transformers.Qwen2VLForConditionalGeneration(config).eval()
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def text_of(model: Any) -> Any:
    """The language model inside, which holds the rotary module and the layers."""
    return getattr(model.model, "language_model", model.model)


def rotary_of(model: Any) -> nn.Module:
    return text_of(model).rotary_emb


def rope_of(model: Any) -> dict[str, Any]:
    """The rope parameters of the layers that have YaRN, in the model's config."""
    rope = text_of(model).config.rope_parameters
    return rope.get("full_attention", rope)


def rebuilt(model: Any, **rope: Any) -> None:
    """A rotary module built from a copy of the config with other rope parameters, put in place of the model's."""
    changed = copy.deepcopy(text_of(model).config)
    own = changed.rope_parameters.get("full_attention", changed.rope_parameters)
    for name, value in rope.items():
        if value is None:
            own.pop(name, None)
        else:
            own[name] = value
    text_of(model).rotary_emb = type(rotary_of(model))(changed)
