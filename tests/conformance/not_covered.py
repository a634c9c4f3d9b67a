"""Model types that the sweep under `patch` does not cover, each with the reason."""

TIMM = "its vision tower is one of timm, which is not installed"
RAISES = "its class raises in every call in transformers 5.24.0: it asks its text model for `image_outputs`"
MAIN = "all its layers take keys and values of a main model, without which its code builds none"
NOT_COVERED = {
    "esmfold2": "its inputs are features of a folded protein, and the widths of its configs hold each other",
    "fast_vlm": TIMM,
    "gemma3n": TIMM,
    "gemma4_assistant": MAIN,
    "gemma4_unified_assistant": MAIN,
    "llama4": RAISES,
    "pe_audio_video": TIMM,
    "pe_audio_video_encoder": TIMM,
    "pe_video": TIMM,
    "pe_video_encoder": TIMM,
    "perception_lm": TIMM,
    "sam3_video": "it runs inside a session that follows objects through a video",
}
# Types that phasor leaves as they are -> what its report says.
LEFT = {
    "efficientloftr": "it forms its tables from x, not from position_ids",
    "llama4_vision_model": "it multiplies complex numbers",
    "lightglue": "its frequencies are trained",
    "vjepa2": "no rotation: cos and sin in the order of halves meet interleaved pairs",
}

# What `patch` leaves to the model's own function, though its code turns as the config says: none but these.
OWN_TURNING = dict.fromkeys(
    ("qwen2_5_omni", "qwen2_5_omni_dit", "qwen2_5_omni_token2wav"),
    "its blocks bring the channels of the first head into halves before they call the function, which turns halves",
)
