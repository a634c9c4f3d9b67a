"""What kinds of layers there are, and what each family's code makes of a config that does not list them."""

NO_ATTENTION = {"linear_attention", "conv", "mamba", "mamba2", "moe", "mlp", "recurrent", "no_op", "linear"}
ATTENTION = {
    "attention", "full_attention", "sliding_attention", "chunked_attention", "indexed_attention", "hybrid",
    "hybrid_sliding", "compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse",
    "reference_sliding_attention",
}  # fmt: skip
NOT_SELF = {"cross_attention"}
SPELLINGS = {"LLLG": 4, "full": "full_attention", "sliding": "sliding_attention", "global": "full_attention"}

# model type -> (every n-th layer is full attention, the key that says n, what the other layers are)
PERIODS: dict[str, tuple[int | None, str, str]] = {
    "afmoe": (4, "global_attn_every_n_layers", "sliding_attention"),
    "bailing_hybrid": (None, "layer_group_size", "linear_attention"),
    "beam": (6, "", "sliding_attention"),
    "cohere2": (4, "sliding_window_pattern", "sliding_attention"),
    "diffusion_gemma_text": (6, "", "sliding_attention"),
    "embedding_gemma2_text": (6, "sliding_window_pattern", "sliding_attention"),
    "exaone4": (4, "sliding_window_pattern", "sliding_attention"),
    "exaone_moe": (4, "sliding_window_pattern", "sliding_attention"),
    "gemma2": (2, "", "sliding_attention"),
    "gemma3_text": (6, "sliding_window_pattern", "sliding_attention"),
    "gemma3n_text": (5, "", "sliding_attention"),
    "gemma4_text": (6, "", "sliding_attention"),
    "gemma4_unified_text": (6, "", "sliding_attention"),
    "gpt_oss": (2, "", "sliding_attention"),
    "kolibri1": (5, "", "sliding_attention"),
    "olmo3": (4, "", "sliding_attention"),
    "olmo_hybrid": (4, "", "linear_attention"),
    "neomme": (6, "", "sliding_attention"),
    "qwen4_exp_text": (4, "full_attention_interval", "linear_attention"),
    "qwen3_5_moe_text": (4, "full_attention_interval", "linear_attention"),
    "qwen3_5_text": (4, "full_attention_interval", "linear_attention"),
    "qwen3_next": (4, "full_attention_interval", "linear_attention"),
    "t5_gemma_module": (2, "", "sliding_attention"),
    "t5gemma2_decoder": (6, "sliding_window_pattern", "sliding_attention"),
    "t5gemma2_text": (6, "sliding_window_pattern", "sliding_attention"),
    "ultrabert": (3, "", "sliding_attention"),
    "vaultgemma": (2, "", "sliding_attention"),
}
FIRST = {"modernbert": 3, "modernbert-decoder": 3, "cwm": 4, "granite_swa": 4, "granitemoe_swa": 4}  # 0, n, 2n, …
LAST_FULL = {"gemma4_text", "gemma4_unified_text", "diffusion_gemma_text", "beam", "neomme"}
MUST_SAY = {"cohere2_moe", "flint", "granitemoehybrid", "lfm2_moe", "lfm3", "minimax", "zamba2"}  # no rule is known

ALL_ALIKE = {
    "falcon_h1": "hybrid", "laguna": "full_attention", "mellum": "full_attention", "zaya": "hybrid",
    "step3p5": "full_attention", "cohere_compass_text": "full_attention", "muse_glimmer_assistant": "sliding_attention",
    **dict.fromkeys(("deepseek_v32", "axk2", "glm_moe_dsa", "hy_v4", "mistral_large4_text"), "indexed_attention"),
}  # fmt: skip

FULL_IS_NOPE = {"afmoe", "cohere2", "cohere2_moe", "exaone4", "exaone_moe", "flint", "kolibri1"}
BY_WINDOW = {"exaone4", "exaone_moe", "kolibri1"}  # … unless there is no window at all
LISTED_NOPE = {"llama4_text", "smollm3", "mistral_large4_text"}  # no_rope_layers: 1 where the layer rotates
