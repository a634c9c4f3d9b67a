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

UNREADABLE = {
    "falcon_perception": "half of each head follows 2-D directions, one set per head, stored in the checkpoint",
    "gemma3n_vision": "its architecture comes from timm, and its config does not describe it",
    "timm_wrapper": "its architecture comes from timm, and its config does not describe it",
}
