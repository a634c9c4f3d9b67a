"""Families outside transformers, other names of families, and families that are refused with a reason."""

from .families import FAMILIES
from .family import Family

REMOTE: dict[str, Family] = {  # the model's own code, which comes with its checkpoint
    "baichuan": Family("BaichuanConfig", 10_000.0, (None,) * 6),
    "chatglm": Family("ChatGLMConfig", 10_000.0, (None,) * 6, partial=0.5, interleaved=True),
    "gpt_neo": Family("the GPT-J pre-release", 10_000.0, (None,) * 6, partial=1.0, interleaved=True, tables="float32"),
    "internlm2": Family("InternLM2Config", 10_000.0, (None,) * 6),
    "minicpm": Family("MiniCPMConfig", 10_000.0, (None,) * 6, tables="float32"),
    "mixformer-sequential": Family("MixFormerSequentialConfig", 10_000.0, (None,) * 6, partial=1.0, tables="rounded"),
    "molmo": Family("MolmoConfig", 10_000.0, (None,) * 6, tables="float32"),
    "nemotron-nas": Family("DeciLMConfig", 10_000.0, (None,) * 6),
    "neobert": Family("NeoBERTConfig", 10_000.0, (None,) * 6, interleaved=True, tables="float32"),
    "new": Family("NewConfig", 10_000.0, (None,) * 6),
    "qwen": Family("QWenConfig", 10_000.0, (None,) * 6, partial=1.0, tables="float32"),
    "qwen3_asr_text": Family("Qwen3ASRTextConfig", 5_000_000.0, (None,) * 6, striped=(24, 20, 20)),
    "roformer_v2": FAMILIES["roformer"],
}

ALIASES = {  # other names for a family, and flat composite configs whose text keys stand at the top
    "deepseek_ref": "deepseek_v4",
    "kimi_k2": "deepseek_v3",
    "llava": "llama",
    "minicpm4": "minicpm",
    "minimax_m3": "minimax_m3_vl_text",
    "mllama": "mllama_text_model",
    "phi4mm": "phi4_multimodal",
    "step3p7": "step3p5",
}

ARCHITECTURES = {  # for configs without model_type
    "MiniCPM3ForCausalLM": "minicpm3",
    "MiniCPM4ForCausalLM": "minicpm",
    "MiniCPMForCausalLM": "minicpm",
}

LEARNED, ALIBI = "uses learned absolute positions", "uses ALiBi"
_T5, NOPE = "uses T5's bucketed relative bias", "uses no position encoding in its attention"
NOT_ROTARY = {
    **dict.fromkeys(("bloom", "mpt", "jina_bert", "jina_bert_v2"), ALIBI),
    **dict.fromkeys(("t5", "mt5", "umt5", "longt5", "switch_transformers", "pop2piano", "udop", "mpnet"), _T5),
    **dict.fromkeys(("opt", "gpt2", "gpt_bigcode", "bert", "roberta", "xlm-roberta", "electra", "albert"), LEARNED),
    **dict.fromkeys(("bart", "mbart", "openai-gpt", "biogpt", "camembert", "bigbird_pegasus", "big_bird"), LEARNED),
    **dict.fromkeys(("pegasus", "marian", "m2m_100", "xglm", "ctrl", "distilbert"), "uses sinusoidal positions"),
    **dict.fromkeys(("xlnet", "transfo-xl", "transformer_xl"), "uses Transformer-XL's relative positions"),
    **dict.fromkeys(("deberta", "deberta-v2", "sew-d"), "uses disentangled relative positions"),
    **dict.fromkeys(("nemotron_h", "jamba", "kimi_linear"), NOPE),
    **dict.fromkeys(("mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"), "has no attention"),
}

UNREADABLE = {
    "cohere_compass_text": "its M-RoPE parameters per layer type are not read yet",
    "dots3_note_text": "its layer types have latent attention of different widths (per_layer_config)",
    "ernie4_5_vl_moe_text": "height and width alternate pair by pair on a permuted ladder",
    "falcon_perception": "half of each head follows 2-D directions, one set per head, stored in the checkpoint",
    "hunyuan_vl_text": "its sections span both members of a pair, so image tokens are not rotated at all but sheared",
    "mistral_large4_text": "its frequencies are trained (a log-scale per pair in the checkpoint)",
    "muse_glimmer_text": "which layers rotate is decided by a list of bases with zeros, and its code uses another base",
    "muse_spark_text": "which layers rotate is decided by a list of bases with zeros, and its code uses another base",
    "nanochat": "it rotates by the negative angle, which RotarySpec does not describe",
    "neomme": "rows and columns alternate pair by pair",
    "esmfold2": "it rotates by atom coordinates",
}
