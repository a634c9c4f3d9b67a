"""Tiny models: model type -> a model of that type with random weights, and inputs for it."""

import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from .shrink import shrink
from .source import read_source, rotating
from .walk import default_config, quiet

LENGTH = 12


def tiny_config(model_type: str) -> Any:
    config = default_config(model_type)
    with quiet():
        return type(config)(**_changed(shrink(config.to_dict(), WIDTHS.get(model_type, 64))))


def _changed(data: dict[str, Any]) -> dict[str, Any]:
    """With the changes of `CHANGES`, in the parts as well."""
    inside = {k: _changed(v) if isinstance(v, dict) and "model_type" in v else v for k, v in data.items()}
    text, tower = inside.get("text_config"), inside.get("vision_config")
    if isinstance(text, dict) and isinstance(tower, dict) and "out_hidden_size" in tower and "hidden_size" in text:
        inside["vision_config"] = {**tower, "out_hidden_size": text["hidden_size"]}
    return _merged(inside, CHANGES.get(str(data.get("model_type")), {}))


def _merged(data: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    both = {k for k, v in changes.items() if isinstance(v, dict) and isinstance(data.get(k), dict)}
    return {**data, **{k: _merged(data[k], v) if k in both else v for k, v in changes.items()}}


def model_class(config: Any) -> type[torch.nn.Module]:
    """The class that transformers runs for a config: an auto class's, else the last model of its file built from it."""
    auto = importlib.import_module("transformers.models.auto.modeling_auto")
    mappings = [auto.MODEL_MAPPING, *(m for name, m in vars(auto).items() if name.endswith("_MAPPING"))]
    for mapping in mappings:
        if type(config) in mapping:
            found = mapping[type(config)]
            return found[0] if isinstance(found, tuple) else found
    names = [n for n in rotating().get(type(config).__name__, ()) if _is_model(n)]
    if not names:
        raise ValueError(f"no model of transformers is built from a {type(config).__name__} alone")
    folder, module, name = names[-1]
    return getattr(importlib.import_module(f"transformers.models.{folder}.{module}"), name)


def _is_model(name: tuple[str, str, str]) -> bool:
    bases = read_source().bases.get(name, [])
    own = any(b == "PreTrainedModel" or b.endswith("PreTrainedModel") or _is_model((*name[:2], b)) for b in bases)
    return own and not name[2].endswith("PreTrainedModel")


def tiny_model(model_type: str, **options: Any) -> torch.nn.Module:
    """A model of this type with random weights, in evaluation mode. ``options``: e.g. ``attn_implementation``."""
    torch.manual_seed(0)
    config = tiny_config(model_type)
    usual = "sdpa" if model_type in ONLY_SDPA else "eager"
    config._attn_implementation = options.pop("attn_implementation", usual)
    with quiet():
        model = model_class(config)(config).eval()
    for parameter in model.parameters():
        # what starts at zero (ZAYA's temperature of the keys) would hide the rotation
        wild = parameter.numel() and not parameter.abs().max() < 1e4  # memory that no initialisation reached
        if wild or not parameter.any() or (parameter.ndim > 1 and parameter.std() < 0.02):
            torch.nn.init.normal_(parameter.data, std=0.05)
    return model


# Values that the rules of `shrink` do not find, with which a config describes a model that runs.
EXPERTS = {"num_experts_per_tok": 2, "n_routed_experts": 4, "n_group": 1, "topk_group": 1}
CHANGES: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_n_heads": 8, "attn_layer_indices": [1, 3]},
    "blt": {
        "patcher_config": {"hidden_size": 128},
        "encoder_config": {"hidden_size_global": 256},
        "decoder_config": {"hidden_size": 128, "hidden_size_global": 256},
        "global_config": {"hidden_size": 256},
    },
    "chmv2": {"backbone_config": {"out_indices": [1, 2, 3, 4]}},
    "chameleon": {"vocabulary_map": {"<image>": 100, "IMGIMGAZ": 101}},
    "clvp": {"decoder_config": {"decoder_fixing_codes": [83, 45, 45, 99]}},
    "clvp_encoder": {"projection_dim": 128},
    "codegen": {"n_head": 4, "n_embd": 1024},
    "dbrx": {"attn_config": {"rope_theta": 10_000.0, "kv_n_heads": 1, "clip_qkv": 8.0}},
    "deepseek_v2": EXPERTS,
    "deepseek_v4": {
        "o_groups": 1,
        "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 6},
    },
    "deepseek_ocr2_text": {**EXPERTS, "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"]},
    "deepseek_ocr2_vision": {"sam_config": {"downsample_channels": [64, 256]}},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
    "dia": {"decoder_config": {"cross_hidden_size": 64}},
    "dots1": {**EXPERTS, "n_shared_experts": 1},
    "dots3_note": {"vision_config": {"adapter_out_dim": 64}, "audio_config": {"adapter_out_dim": 64}},
    "dots3_note_audio_encoder": {"adapter_input_size": 64},
    "dots3_note_vision_encoder": {"adapter_in_dim": 128},
    "edgetam_video": {"memory_attention_rope_feat_sizes": [6, 6], "memory_attention_rope_k_sizes": [4, 4]},
    "efficientloftr": {"hidden_size": 256, "num_attention_heads": 8, "num_key_value_heads": 8},
    "emu3": {"vocabulary_map": {"<image>": 100}},
    "falcon_h1": {"mamba_n_heads": 4, "mamba_d_ssm": 32},
    "fun_asr_nano": {"adaptor_config": {"hidden_size": 64, "intermediate_size": 16}},
    "glm5_next": {"text_config": {"index_topk": 16}},
    "granite4_vision": {"deepstack_layer_map": [[-2, 0], [-1, 1]], "downsample_rate": "1/2"},
    "granite_docling": {"vision_config": {"out_hidden_size": 128}},
    "granitemoehybrid": {"mamba_n_heads": 8},
    "hrm_text": {"num_layers_per_stack": 2, "num_hidden_layers": 16},
    "inkling2": {"vision_config": {"text_hidden_size": 64}},
    "jev": {"hidden_size": 64},
    "llama4_vision_model": {"intermediate_size": 384},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"] * 2},
    "molmo2": {"adapter_config": {"vision_feature_layer": [3, 2]}},
    "moonshine_streaming": {"num_key_value_heads": 2},
    "muse_spark": {"audio_config": {"out_hidden_size": 64}, "vision_config": {"out_hidden_size": 64}},
    "nemotron3_diarization": {"head_config": {"audio_hidden_size": 128}},
    "nemotron": {"num_key_value_heads": 2},
    "pixtral": {"hidden_size": 128},
    "nemotron_h": {"n_groups": 1},
    "qwen2_vl": {"vision_config": {"hidden_size": 64}},
    "qwen3_omni_moe": {"talker_config": {"spatial_merge_size": 2}},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 32},
    "qwen4_exp_text": {
        "indexer_n_heads": 2,
        "indexer_kv_heads": 1,
        "indexer_head_dim": 256,
        "indexer_budget": 8,
        "indexer_compress_ratio": 2,
    },
    "sam2_video": {"memory_attention_rope_feat_sizes": [6, 6]},
    "sam3_tracker": {
        "vision_config": {"backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]]},
        "prompt_encoder_config": {"hidden_size": 64},
    },
    "sam3_tracker_video": {"memory_attention_rope_feat_sizes": [6, 6]},
    "sam3_vision_model": {"fpn_hidden_size": 64},
    "sapiens2": {"num_key_value_heads_per_layer": None},
    "step3p5": {"sliding_window": 8},
    "t5_gemma_module": {"dropout_rate": 0.0},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "t5gemma2_text": {"dropout_rate": 0.0},
    "zamba2": {"n_mamba_heads": 2, "mamba_headdim": 160, "attention_hidden_size": 320},
}
ONLY_SDPA = ("qwen2_5_omni_dit", "qwen2_5_omni_token2wav")  # they look "eager" up where it is not
# Hidden sizes of models whose code takes the width of a head from them, whatever head_dim says.
WIDTHS = {
    "bailing_hybrid": 256, "blt_patcher": 128, "blt_global_transformer": 256, "blt_local_decoder": 128,
    "esmc": 128, "gradium_phonon_tts": 768,
    "helium": 256, "pocket_tts": 1024,
}  # fmt: skip


def tiny_inputs(model: torch.nn.Module) -> dict[str, Any]:
    """The first inputs of `_candidates` that the model takes; raises what the last one raised."""
    error: Exception = ValueError(f"no inputs are known for {type(model).__name__}")
    for inputs in _candidates(model):
        try:
            if outputs(model, inputs):
                return inputs
        except Exception as raised:
            error = raised
    raise error


def _candidates(model: torch.nn.Module) -> Iterator[dict[str, Any]]:
    """Words, patches on a grid, an image, sound: what the parameters of ``forward`` ask for, in usual shapes."""
    names, config = inspect.signature(model.forward).parameters, model.config
    made = torch.Generator().manual_seed(0)

    def noise(*shape: int) -> Tensor:
        return torch.randn(shape, generator=made)

    words = min(90, getattr(config.get_text_config(), "vocab_size", None) or 90)
    ids = torch.randint(3, words, (2, LENGTH), generator=made)
    size = next((v for n in ("patch_size", "spatial_patch_size") if isinstance(v := getattr(config, n, None), int)), 14)
    hidden = getattr(config, "hidden_size", None) or 64
    if "input_ids" in names:
        yield {"input_ids": ids, **({"decoder_input_ids": ids} if "decoder_input_ids" in names else {})}
    if "grid_thw" in names or "image_grid_thw" in names:
        grid = "grid_thw" if "grid_thw" in names else "image_grid_thw"
        image = "hidden_states" if "hidden_states" in names else "pixel_values"
        more = {"merge_sizes": torch.tensor([2, 2])} if "merge_sizes" in names else {}
        for patch in (3 * size**2, 3 * size**2 * getattr(config, "temporal_patch_size", 1)):
            yield {image: noise(48, patch), grid: torch.tensor([[1, 4, 4], [1, 4, 8]]), **more}
        for patch in (noise(48, 3, size, size), noise(48, 3, getattr(config, "temporal_patch_size", 1), size, size)):
            yield {image: patch, grid: torch.tensor([[1, 4, 4], [1, 4, 8]]), **more}
    elif "pixel_position_ids" in names:
        cells = torch.stack(torch.meshgrid(torch.arange(6), torch.arange(6), indexing="ij"), -1).reshape(1, -1, 2)
        yield {"pixel_values": noise(1, 36, 3 * size**2), "pixel_position_ids": cells}
    elif "pixel_values_videos" in names:
        yield {"pixel_values_videos": noise(1, 4, 3, 64, 64), "skip_predictor": True}
    elif "pixel_values" in names:
        side = next((v for n in ("image_size",) if isinstance(v := getattr(config, n, None), int)), 64)
        sizes = {"image_sizes": torch.tensor([[side, side]])} if "image_sizes" in names else {}
        yield {"pixel_values": noise(1, 3, side, side), **sizes}
    if "input_features" in names:
        bins = getattr(config, "num_mel_bins", None) or 80
        widths = (bins, getattr(config, "feature_projection_input_dim", bins))
        yield from ({"input_features": noise(1, 64, width)} for width in widths)
        yield {"input_features": noise(1, bins, 64)}
    if "input_values" in names:
        yield from ({"input_values": x} for x in (noise(1, 1, 4000), noise(1, 4000)))
    if {"input_ids", "pixel_values"} <= set(names):
        side = getattr(config, "image_size", None) or getattr(getattr(config, "vision_config", None), "image_size", 64)
        yield {"input_ids": ids[:1], "pixel_values": noise(1, 3, side, side)}
    if {"input_values", "input_features"} <= set(names):
        yield {"input_values": noise(1, 1, 4000), "input_features": noise(1, 12, 160)}
    if "past_values" in names:
        yield {"past_values": [noise(64)]}
    if "inputs_embeds" in names:
        yield {"inputs_embeds": noise(2, LENGTH, hidden)}


def outputs(model: torch.nn.Module, inputs: dict[str, Tensor]) -> list[Tensor]:
    """Every floating-point tensor of the model's output."""
    with quiet(), torch.no_grad():
        result = model(**inputs)
    return _tensors(result)


def _tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = list(value.values())
    return [t for v in value for t in _tensors(v)] if isinstance(value, list | tuple) else []
