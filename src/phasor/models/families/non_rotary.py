"""Models and parts without rotary, by what they use instead; and those whose rotation no config describes."""

from ..reading.row import ALIBI, LEARNED, NOPE, SINUSOIDAL, T5, NonRotary, Row, Unreadable

_BY_ENCODING = {
    **dict.fromkeys(("bloom", "jina_bert", "jina_bert_v2"), ALIBI),
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5", "switch_transformers", "pop2piano", "udop", "mpnet"), T5),
    **dict.fromkeys(("opt", "gpt2", "gpt_bigcode", "bert", "roberta", "xlm-roberta", "electra", "albert"), LEARNED),
    **dict.fromkeys(("bart", "mbart", "openai-gpt", "biogpt", "camembert", "bigbird_pegasus", "big_bird"), LEARNED),
    **dict.fromkeys(("clip_text_model", "clip_vision_model", "clvp_decoder", "siglip_vision_model"), LEARNED),
    **dict.fromkeys(("dinov2", "intern_vit_6b", "siglip"), LEARNED),
    **dict.fromkeys(
        ("pegasus", "marian", "m2m_100", "xglm", "ctrl", "distilbert", "whisper", "qwen3_asr_audio_encoder"), SINUSOIDAL
    ),
    **dict.fromkeys(("xlnet", "transfo-xl", "transformer_xl"), "uses Transformer-XL's relative positions"),
    **dict.fromkeys(("deberta", "deberta-v2", "sew-d"), "uses disentangled relative positions"),
    **dict.fromkeys(("nemotron_h", "jamba", "moshi_depth", "glm5_next_text"), NOPE),
    **dict.fromkeys(("inkling_text", "inkling2_text"), "uses a distance bias that depends on the data"),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), "has no attention"),
}

# parts of composite models whose code in transformers 5.23 calls no rotary function
PLAIN = {
    "aimv2_text_model", "aimv2_vision_model", "align_text_model", "align_vision_model", "altclip_text_model",
    "altclip_vision_model", "audioflamingo3_encoder", "beit", "blip_2_qformer", "blip_2_vision_model",
    "blip_text_model", "blip_vision_model", "bridgetower_text_model", "bridgetower_vision_model", "canary_decoder",
    "chameleon_vqgan", "chinese_clip_text_model", "chinese_clip_vision_model", "clap_audio_model", "clap_text_model",
    "clipseg_text_model", "clipseg_vision_model", "coarse_acoustics", "cosmos3_edge_vision", "dac",
    "deepseek_ocr2_sam_vision_model", "detr", "edgetam_mask_decoder", "edgetam_prompt_encoder",
    "edgetam_video_mask_decoder", "edgetam_video_prompt_encoder", "edgetam_vision_model", "emu3_vqgan", "encodec",
    "fastspeech2_conformer", "fastspeech2_conformer_hifigan", "fine_acoustics", "flava_image_codebook",
    "flava_image_model", "flava_multimodal_model", "flava_text_model", "florence_vision", "fun_asr_nano_encoder",
    "gemma3n_audio", "gemma4_audio", "gemma4_unified_audio", "gemma4_unified_vision", "git_vision_model",
    "glm_image_vision", "glm_image_vqmodel", "got_ocr2_vision", "granite_docling_vision", "granite_speech5_encoder",
    "granite_speech_encoder", "granite_speech_plus_encoder", "groupvit_text_model", "groupvit_vision_model",
    "hgnet_v2", "hubert", "hunyuan_vl_vision", "idefics2_perceiver", "idefics2_vision", "idefics3_vision",
    "idefics_perciever", "idefics_vision", "inkling_audio", "inkling_vision", "instructblip_qformer",
    "instructblip_vision_model", "instructblipvideo_qformer", "instructblipvideo_vision_model", "internvl_vision",
    "janus_vision_model", "janus_vqgan", "kosmos_2_5_text_model", "kosmos_2_5_vision_model", "kosmos_2_text_model",
    "kosmos_2_vision_model", "lw_detr_vit", "metaclip_2_text_model", "metaclip_2_vision_model", "minicpm_ocr_vision",
    "minicpmv4_6_vision", "minicpmv4_7_vision", "mllama_vision_model", "molmo2_adapter", "molmo2_vision",
    "moonshine_streaming_encoder", "moss_transcribe_diarize_audio", "muse_spark_audio", "musicgen_decoder",
    "musicgen_melody_decoder", "nemotron_asr_streaming_encoder", "ovis2_vision", "owlv2_text_model",
    "owlv2_vision_model", "owlvit_text_model", "owlvit_vision_model", "parakeet_encoder", "phi4_multimodal_audio",
    "phi4_multimodal_vision", "pix2struct_text_model", "pix2struct_vision_model", "pp_chart2table_vision",
    "pp_formulanet_text", "pp_formulanet_vision", "pp_lcnet", "pp_lcnet_v3", "pp_lcnet_v4", "qianfan_ocr_vision",
    "qwen2_5_omni_audio_encoder", "qwen2_5_omni_bigvgan", "qwen2_audio_encoder", "qwen3_asr_encoder",
    "qwen3_omni_moe_audio_encoder", "radio", "resnet", "rf_detr_dinov2", "rt_detr_resnet", "sam2_hiera_det_model",
    "sam2_mask_decoder", "sam2_prompt_encoder", "sam2_video_mask_decoder", "sam2_video_prompt_encoder",
    "sam2_vision_model", "sam3_detr_decoder", "sam3_detr_encoder", "sam3_geometry_encoder",
    "sam3_lite_text_detr_decoder", "sam3_lite_text_detr_encoder", "sam3_lite_text_geometry_encoder",
    "sam3_lite_text_mask_decoder", "sam3_lite_text_text_model", "sam3_mask_decoder", "sam3_tracker_mask_decoder",
    "sam3_tracker_prompt_encoder", "sam3_tracker_video_mask_decoder", "sam3_tracker_video_prompt_encoder",
    "sam_hq_mask_decoder", "sam_hq_prompt_encoder", "sam_hq_vision_model", "sam_mask_decoder", "sam_prompt_encoder",
    "sam_vision_model", "sapiens2_head", "semantic", "siglip2_text_model", "siglip2_vision_model", "siglip_text_model",
    "slanext_vision", "smolvlm_vision", "superpoint", "swin", "timm_backbone", "tipsv2_text_model",
    "tipsv2_vision_model", "unlimited_ocr_sam_vision_model", "unlimited_ocr_vision", "unlimited_ocr_vision_encoder",
    "uvdoc_backbone", "vibevoice_acoustic_tokenizer", "vibevoice_acoustic_tokenizer_encoder", "vibevoice_diffusion",
    "videoprism_text_model", "videoprism_vision_model", "vit", "vitdet", "vitpose_backbone", "voxtral_encoder",
    "wav2vec2", "xclip_text_model", "xclip_vision_model",
}  # fmt: skip
UNNAMED = ("adaptor_config", "ffn_config", "flow_head_config", "head_config")  # parts told by their key only
_NO_CALL = "has no rotary function in its code"
ROWS: dict[str, Row] = {
    **{name: NonRotary(encoding) for name, encoding in _BY_ENCODING.items()},
    **{name: NonRotary(_NO_CALL) for name in (*PLAIN, *UNNAMED)},
    "mpt": NonRotary(ALIBI, unless="attn_config.rope"),
    "kimi_linear": NonRotary(NOPE),
    "falcon_perception": Unreadable(
        "half of each head follows 2-D directions, one set per head, stored in the checkpoint"
    ),
    "gemma3n_vision": Unreadable("its architecture comes from timm, and its config does not describe it"),
    "timm_wrapper": Unreadable("its architecture comes from timm, and its config does not describe it"),
    "lightglue": Unreadable(
        "its frequencies are trained: the angles are a linear map of the two coordinates of a keypoint "
        "(posenc.projector, neighbouring channels, self-attention only); build them with Rotation.from_frequencies"
    ),
}
