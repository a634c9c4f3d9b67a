"""Models and parts without rotary: what they use instead, and the types of parts whose code has no rotation at all."""

LEARNED, ALIBI = "uses learned absolute positions", "uses ALiBi"
_T5, NOPE = "uses T5's bucketed relative bias", "uses no position encoding in its attention"
_SINE = "uses sinusoidal positions"
NOT_ROTARY = {
    **dict.fromkeys(("bloom", "mpt", "jina_bert", "jina_bert_v2"), ALIBI),
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5", "switch_transformers", "pop2piano", "udop", "mpnet"), _T5),
    **dict.fromkeys(("opt", "gpt2", "gpt_bigcode", "bert", "roberta", "xlm-roberta", "electra", "albert"), LEARNED),
    **dict.fromkeys(("bart", "mbart", "openai-gpt", "biogpt", "camembert", "bigbird_pegasus", "big_bird"), LEARNED),
    **dict.fromkeys(("clip_text_model", "clip_vision_model", "clvp_decoder", "siglip_vision_model"), LEARNED),
    **dict.fromkeys(("dinov2", "intern_vit_6b", "siglip"), LEARNED),
    **dict.fromkeys(
        ("pegasus", "marian", "m2m_100", "xglm", "ctrl", "distilbert", "whisper", "qwen3_asr_audio_encoder"), _SINE
    ),
    **dict.fromkeys(("xlnet", "transfo-xl", "transformer_xl"), "uses Transformer-XL's relative positions"),
    **dict.fromkeys(("deberta", "deberta-v2", "sew-d"), "uses disentangled relative positions"),
    **dict.fromkeys(("nemotron_h", "jamba", "kimi_linear", "moshi_depth", "glm5_next_text"), NOPE),
    **dict.fromkeys(("inkling_text", "inkling2_text"), "uses a distance bias that depends on the data"),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), "has no attention"),
}

# parts of composite models whose code in transformers 5.23 calls no rotary function
PLAIN = {
    "audioflamingo3_encoder", "blip_2_qformer", "chameleon_vqgan", "cosmos3_edge_vision", "dac",
    "deepseek_ocr2_sam_vision_model", "edgetam_video_mask_decoder", "edgetam_video_prompt_encoder", "emu3_vqgan",
    "fun_asr_nano_encoder", "gemma3n_audio", "gemma4_audio", "glm_image_vision", "glm_image_vqmodel",
    "got_ocr2_vision", "granite_docling_vision", "granite_speech_encoder", "granite_speech_plus_encoder",
    "hunyuan_vl_vision", "idefics2_perceiver", "idefics2_vision", "idefics3_vision", "idefics_perciever",
    "idefics_vision", "internvl_vision", "janus_vision_model", "janus_vqgan", "minicpm_ocr_vision",
    "minicpmv4_6_vision", "minicpmv4_7_vision", "mllama_vision_model", "molmo2_adapter", "molmo2_vision",
    "moonshine_streaming_encoder", "moss_transcribe_diarize_audio", "muse_spark_audio", "ovis2_vision",
    "phi4_multimodal_audio", "phi4_multimodal_vision", "pp_chart2table_vision", "qianfan_ocr_vision",
    "qwen2_5_omni_audio_encoder", "qwen2_5_omni_bigvgan", "qwen2_audio_encoder", "qwen3_asr_encoder",
    "qwen3_omni_moe_audio_encoder", "sam2_hiera_det_model", "sam2_video_mask_decoder", "sam2_video_prompt_encoder",
    "sam2_vision_model", "sam3_detr_decoder", "sam3_detr_encoder", "sam3_geometry_encoder",
    "sam3_lite_text_detr_decoder", "sam3_lite_text_detr_encoder", "sam3_lite_text_geometry_encoder",
    "sam3_lite_text_mask_decoder", "sam3_lite_text_text_model", "sam3_mask_decoder", "sam3_tracker_mask_decoder",
    "sam3_tracker_prompt_encoder", "sam3_tracker_video_mask_decoder", "sam3_tracker_video_prompt_encoder",
    "sam_vision_model", "sapiens2_head", "siglip2_vision_model", "smolvlm_vision", "superpoint",
    "unlimited_ocr_sam_vision_model", "unlimited_ocr_vision", "unlimited_ocr_vision_encoder",
    "vibevoice_acoustic_tokenizer", "vibevoice_acoustic_tokenizer_encoder", "vibevoice_diffusion", "voxtral_encoder",
}  # fmt: skip
UNNAMED = ("adaptor_config", "ffn_config", "flow_head_config", "head_config")  # parts told by their key only
_NO_CALL = "has no rotary function in its code"
NOT_ROTARY.update(dict.fromkeys((*PLAIN, *UNNAMED), _NO_CALL))


class NoRotary(ValueError):
    """There is no rotary embedding to read."""


def no_rotary(model_type: str, encoding: str) -> NoRotary:
    return NoRotary(f"{model_type} {encoding}; it has no rotary embedding to read")
