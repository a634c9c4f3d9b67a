"""Small transformers models of the families that the tests of `phasor.patch` start from."""

from typing import Any

import torch
from torch import Tensor

SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip

MLA = {
    "num_key_value_heads": 4, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 16, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("LlamaConfig", {"rope_theta": 500_000.0}),
    "qwen2": ("Qwen2Config", {}),
    "gpt_neox": ("GPTNeoXConfig", {}),  # the first quarter of the channels
    "gemma3": ("Gemma3TextConfig", {"head_dim": 16, "layer_types": ["sliding_attention", "full_attention"]}),
    "glm": ("GlmConfig", {"head_dim": 16}),  # interleaved, the first half
    "deepseek_v3": ("DeepseekV3Config", MLA),  # read interleaved, written as halves, the last channels
    "cohere": ("CohereConfig", {}),  # tables rounded, products in float32
    "olmo2": ("Olmo2Config", {}),  # tables in float32
}

# Those whose code forms and multiplies complex numbers.
COMPLEX: dict[str, tuple[str, dict[str, Any]]] = {
    "deepseek_v2": ("DeepseekV2Config", MLA | {"topk_method": "greedy"}),
    "llama4": (
        "Llama4TextConfig",
        {"head_dim": 16, "no_rope_layers": [1, 1], "intermediate_size_mlp": 64, "num_local_experts": 2},
    ),
}

# Others, for what the families above do not have.
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "phi3": ("Phi3Config", {"original_max_position_embeddings": 256}),
    "gptj": ("GPTJConfig", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 512}),  # a table that is kept
}


def causal(family: str, **changes: Any) -> Any:
    """A causal language model with random weights, in evaluation mode."""
    import transformers

    name, more = (FAMILIES | COMPLEX | OTHERS)[family]
    options = {k: changes.pop(k) for k in ("attn_implementation", "dtype") if k in changes}
    config = getattr(transformers, name)(**{**SIZES, **more, **changes})
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(config, **options).eval()


def tokens(batch: int = 2, length: int = 17) -> Tensor:
    return torch.randint(3, SIZES["vocab_size"], (batch, length), generator=torch.Generator().manual_seed(2))


def logits(model: Any, ids: Tensor | None = None, **more: Any) -> Tensor:
    with torch.no_grad():
        found: Tensor = model(tokens() if ids is None else ids, use_cache=False, **more).logits
    return found


def qwen2_vl() -> tuple[Any, dict[str, Tensor]]:
    """A vision-language model (M-RoPE, and a vision tower with rows and columns) and inputs with one image."""
    import transformers

    text = {**SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}}
    vision = {"depth": 2, "embed_dim": 32, "num_heads": 2, "hidden_size": 64, "patch_size": 4, "mlp_ratio": 2}
    config = transformers.Qwen2VLConfig(
        text_config=text, vision_config=vision, image_token_id=90, video_token_id=91, vision_start_token_id=92
    )
    torch.manual_seed(1)
    model = transformers.Qwen2VLForConditionalGeneration(config).eval()
    ids = tokens(1, 12)
    ids[0, 3], ids[0, 4:8] = 92, 90
    ids[ids == 91] = 5
    inputs = {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == 90).int(),
        "pixel_values": torch.randn(16, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    }
    return model, inputs
