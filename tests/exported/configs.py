"""The rotary parts of published configs, with the models' own numbers; and their first layer's spec."""

from phasor import RotarySpec, read_config

LLAMA_3_1 = {
    "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
    "num_hidden_layers": 32, "max_position_embeddings": 131072, "rope_theta": 500000.0,
    "rope_scaling": {
        "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    },
}  # fmt: skip
PHI_2 = {
    "model_type": "phi", "hidden_size": 2560, "num_attention_heads": 32, "num_hidden_layers": 32,
    "partial_rotary_factor": 0.4, "rope_theta": 10000.0, "max_position_embeddings": 2048,
}  # fmt: skip
GPT_J = {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28, "rotary_dim": 64, "n_positions": 2048}
QWEN2_VL = {
    "model_type": "qwen2_vl_text", "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2,
    "num_hidden_layers": 28, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
    "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]},
}  # fmt: skip
QWEN2_5_YARN = {  # as the model's card says, for 128k tokens: the attention factor is 1.1386
    "model_type": "qwen2", "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
    "num_hidden_layers": 28, "max_position_embeddings": 32768, "rope_theta": 1000000.0,
    "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
}  # fmt: skip
PUBLISHED = {"Llama 3.1": LLAMA_3_1, "Phi-2": PHI_2, "GPT-J": GPT_J, "Qwen2-VL": QWEN2_VL, "YaRN": QWEN2_5_YARN}


def spec_of(name: str) -> RotarySpec:
    spec = read_config(PUBLISHED[name]).layers[0]
    assert spec is not None
    return spec
