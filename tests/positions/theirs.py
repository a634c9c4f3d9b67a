"""`get_rope_index` of transformers' own models: a class that never builds its weights, with a default config."""

import importlib
from functools import cache
from typing import Any

import torch

# model_type -> (module, model class, config class)
MODELS = {
    "cohere_compass": ("CohereCompassModel", "CohereCompassConfig"),
    "cosmos3_edge": ("Cosmos3EdgeModel", "Cosmos3EdgeConfig"),
    "cosmos3_omni": ("Cosmos3OmniModel", "Cosmos3OmniConfig"),
    "ernie4_5_vl_moe": ("Ernie4_5_VLMoeModel", "Ernie4_5_VLMoeConfig"),
    "glm46v": ("Glm46VModel", "Glm46VConfig"),
    "glm4v": ("Glm4vModel", "Glm4vConfig"),
    "glm4v_moe": ("Glm4vMoeModel", "Glm4vMoeConfig"),
    "glm_image": ("GlmImageModel", "GlmImageConfig"),
    "glm_ocr": ("GlmOcrModel", "GlmOcrConfig"),
    "hunyuan_vl": ("HunYuanVLModel", "HunYuanVLConfig"),
    "minicpmv4_7": ("MiniCPMV4_7Model", "MiniCPMV4_7Config"),
    "paddleocr_vl": ("PaddleOCRVLModel", "PaddleOCRVLConfig"),
    "qwen2_5_omni": ("Qwen2_5OmniThinkerForConditionalGeneration", "Qwen2_5OmniThinkerConfig"),
    "qwen2_5_vl": ("Qwen2_5_VLModel", "Qwen2_5_VLConfig"),
    "qwen2_vl": ("Qwen2VLModel", "Qwen2VLConfig"),
    "qwen3_5": ("Qwen3_5Model", "Qwen3_5Config"),
    "qwen3_5_moe": ("Qwen3_5MoeModel", "Qwen3_5MoeConfig"),
    "qwen3_omni_moe": ("Qwen3OmniMoeThinkerForConditionalGeneration", "Qwen3OmniMoeThinkerConfig"),
    "qwen3_vl": ("Qwen3VLModel", "Qwen3VLConfig"),
    "qwen3_vl_moe": ("Qwen3VLMoeModel", "Qwen3VLMoeConfig"),
    "qwen4_exp": ("Qwen4ExpModel", "Qwen4ExpConfig"),
}


@cache
def _classes(name: str) -> tuple[Any, Any]:
    model, config = MODELS[name]
    folder = f"transformers.models.{name}"
    return (
        getattr(importlib.import_module(f"{folder}.modeling_{name}"), model),
        getattr(importlib.import_module(f"{folder}.configuration_{name}"), config),
    )


def config_of(name: str, **changes: Any) -> Any:
    return _classes(name)[1](**changes)


def bare_model(name: str, config: Any) -> Any:
    """The model without its parts: `get_rope_index` reads the config only."""
    model = _classes(name)[0]

    class Bare(model):
        def __init__(self) -> None:
            torch.nn.Module.__init__(self)

    bare = Bare()
    bare.config = config
    if "omni_moe" in name or name == "qwen2_5_omni":
        bare.spatial_merge_size = config.vision_config.spatial_merge_size
    return bare
