"""What a config made small needs beside the rules of `phasor.eye.tiny`, by model type."""

from typing import Any

FEW_FILTERS = {"num_filters": 4}
MANY_GROUPS = {"num_code_groups": 32}  # of codes: a head for each but the first, chosen by the number of tokens
# What a default config lacks to describe a model that runs, or what no rule makes small; before it is made small.
BEFORE: dict[str, dict[str, Any]] = {
    "emu3": {"vocabulary_map": {"<image>": 100}},
    "granite4_vision": {"deepstack_layer_map": [[-2, 0], [-1, 1]], "downsample_rate": "1/2"},
    "vibevoice": {"audio_config": FEW_FILTERS, "semantic_model_config": FEW_FILTERS},
    "vibevoice_asr": {
        "acoustic_tokenizer_encoder_config": FEW_FILTERS,
        "semantic_tokenizer_encoder_config": FEW_FILTERS,
    },
    "qwen3_omni_moe": {
        "talker_config": {"spatial_merge_size": 2, "text_config": {"shared_expert_intermediate_size": 32}},
    },
}
# What the rules do not fit together, or leave too large.
AFTER: dict[str, dict[str, Any]] = {
    "chmv2": {
        "backbone_config": {
            "num_hidden_layers": 4,
            "stage_names": ["stem", "stage1", "stage2", "stage3", "stage4"],
            "out_features": None,
            "out_indices": [1, 2, 3, 4],
        },
    },
    "clvp": {"decoder_config": {"decoder_fixing_codes": [83, 45, 45, 99]}},
    "codegen": {"n_head": 4, "n_embd": 1024},  # q, k and v are packed for four devices
    "deepseek_ocr2_vision": {"sam_config": {"downsample_channels": [512, 256]}},
    "deepseek_v4": {"compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 6}},
    "dots3_note": {"audio_config": {"conv_output_size": 96}},
    "dots3_note_audio_encoder": {"conv_output_size": 96},
    "eomt_dinov3": {"num_blocks": 1},
    "hrm_text": {"num_layers_per_stack": 2, "num_hidden_layers": 16},
    "lightglue": {"keypoint_detector_config": {"keypoint_decoder_dim": 65}},
    "llama4_vision_model": {"intermediate_size": 384},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"]},
    "qwen2_5_omni_token2wav": {"dit_config": {"mel_dim": 80}},
    "qwen3_omni_moe": {"talker_config": {**MANY_GROUPS, "code_predictor_config": MANY_GROUPS}},
    "qwen3_omni_moe_talker_code_predictor": MANY_GROUPS,
    "sam3_tracker": {"vision_config": {"backbone_feature_sizes": [[24, 24], [12, 12], [6, 6]]}},
    "sapiens2": {"num_key_value_heads_per_layer": None},
    "seamless_m4t": {"feature_projection_input_dim": 160},
    "shieldgemma2": {"yes_token_index": 98, "no_token_index": 99},
    "zamba2": {"mamba_headdim": 320},
}
ONLY_SDPA = ("qwen2_5_omni_dit", "qwen2_5_omni_token2wav")  # they look "eager" up where it is not
