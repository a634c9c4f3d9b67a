"""Tiny models and inputs for types whose model is no auto class's, or takes what no other does."""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from phasor.models.configs import ModelRotary, read_config

from .pieces import after_words, decoder, made, memory, noise, parts_of_omni, words, words_and_waves
from .tiny import candidates, outputs, tiny_config, tiny_inputs, tiny_model
from .walk import quiet

# Type -> (composite type, path of its config, module, class): models that are built from a part of another's config.
PARTS = {
    "evolla_saprot": ("evolla", "protein_encoder_config", "evolla", "EvollaSaProtProteinEncoder"),
    "qwen3_omni_moe_code2wav": (
        "qwen3_omni_moe", "code2wav_config", "qwen3_omni_moe", "Qwen3OmniMoeCode2WavTransformerModel",
    ),
    "t5_gemma_module": ("t5gemma", "encoder", "t5gemma", "T5GemmaEncoder"),
    "voxtral_realtime_text": ("voxtral_realtime", "text_config", "voxtral_realtime", "VoxtralRealtimeTextModel"),
}  # fmt: skip
OF = {"vjepa2_predictor": ("vjepa2", "predictor"), "esmfold2_atom": ("esmfold2", "atom_encoder")}  # built whole


def build(model_type: str) -> nn.Module:
    """`tiny_model`, and the models of `PARTS`; a type may be that of an indexer (``deepseek_v32.indexer``)."""
    model_type = model_type.removesuffix(".indexer")
    if model_type not in PARTS:
        return tiny_model(OF.get(model_type, (model_type,))[0])
    whole, path, folder, name = PARTS[model_type]
    config = getattr(tiny_config(whole), path)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    with quiet():
        model = getattr(importlib.import_module(f"transformers.models.{folder}.modeling_{folder}"), name)(config).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            nn.init.normal_(parameter.data, std=0.05)
    return model  # type: ignore[no-any-return]


def read(model_type: str, model: nn.Module) -> ModelRotary:
    """What phasor reads in the config of such a model, or of its indexer."""
    if model_type.endswith(".indexer"):
        return read_config(model.config, part="indexer")
    whole, path = (PARTS | OF).get(model_type, ("", ""))[:2]
    return read_config(tiny_config(whole) if whole else model.config, part=path or None)


def denoised(model: Any) -> dict[str, Any]:
    config, frames = model.config, 24
    return {
        "hidden_states": noise(1, frames, config.mel_dim),
        "condition_vector": noise(1, frames, config.mel_dim),
        "speaker_embedding": noise(1, frames, config.enc_emb_dim),
        "quantized_code": words(1, frames // config.repeats),
        "time_step": torch.tensor(0.5),
    }


def described(model: Any) -> dict[str, Any]:
    """SAM 3: an image, and words for what is to be found in it."""
    side = model.config.vision_config.backbone_config.image_size
    return {"input_ids": words(1, 12), "pixel_values": noise(1, 3, side, side)}


INPUTS: dict[str, Callable[[Any], Any]] = {
    "blt": lambda m: {"input_ids": words(2, 12), "use_cache": False},
    "blt_local_encoder": lambda m: {
        "input_ids": words(2, 12), "num_patches": 3, "patch_ids": (torch.arange(12) // 4).expand(2, -1),
    },
    "blt_local_decoder": lambda m: {
        "inputs_embeds": noise(2, 12, m.config.hidden_size),
        "patch_embeds": noise(2, 12, m.patch_embedding_projection.in_features),
    },
    "clvp": lambda m: {
        "input_ids": words(1, 12), "input_features": noise(1, m.config.decoder_config.feature_size, 64),
    },
    "deepseek_ocr2_encoder": lambda m: {"inputs_embeds": noise(1, 12, m.config.hidden_size), "num_patches": 6},
    "dia": lambda m: {
        "input_ids": words(2, 12), "decoder_input_ids": words(2, 12, m.config.decoder_config.num_channels),
    },
    "dia_decoder": lambda m: {
        "input_ids": words(2, 12, m.config.num_channels),
        "encoder_hidden_states": noise(2, 12, m.config.cross_hidden_size),
    },
    "dots3_note_audio_encoder": lambda m: {
        "input_features": noise(1, m.config.feature_size, 64), "chunk_sample_lengths": torch.tensor([64 * 160]),
    },
    "efficientloftr": lambda m: {"pixel_values": noise(1, 2, 3, 64, 64)},
    "idefics": lambda m: {
        "input_ids": words(1, 12), "pixel_values": noise(1, 1, 3, *[m.config.vision_config.image_size] * 2),
        "image_attention_mask": torch.ones(1, 12, 1),
    },
    "inkling2_vision": lambda m: {
        "pixel_values": noise(16, *[m.config.patch_size * m.config.spatial_merge_size] * 2, 3),
        "image_grid_thw": torch.tensor([[1, 4, 4]]),
    },
    "jev": lambda m: {
        "input_ids": words(1, 12), "marks": torch.tensor([[4, 9]]), "num_options": torch.tensor([[2, 2]]),
        "question_type_ids": torch.tensor([[0, 0]]),
    },
    "lasr_ctc": lambda m: {"input_features": noise(1, 64, m.config.encoder_config.num_mel_bins)},
    "nemotron3_diarization": lambda m: {"input_features": noise(1, 64, m.config.audio_config.num_mel_bins)},
    "nemotron3_5_transcribe_audio": lambda m: {"input_features": noise(1, 64, m.config.asr_config.num_mel_bins)},
    "lightglue": lambda m: {"pixel_values": noise(1, 2, 3, 64, 64)},
    "mimi_decoder": lambda m: {"latents": noise(1, m.config.hidden_size, 6)},
    "moonshine": lambda m: {"input_values": noise(1, 4000), "decoder_input_ids": words(1, 12)},
    "moonshine_streaming": lambda m: {"input_values": noise(1, 4000), "decoder_input_ids": words(1, 12)},
    "muse_glimmer_assistant": lambda m: {
        "noise_embeds": noise(1, m.config.block_size, m.config.hidden_size),
        "context_hidden_states": noise(1, 12, m.config.hidden_size * len(m.config.target_layer_ids)),
        "attention_mask": torch.ones(1, 12 + m.config.block_size, dtype=torch.long),
    },
    "muse_glimmer_vision": lambda m: {"pixel_values": noise(48, 1176), "grid_thw": torch.tensor([[1, 4, 12]])},
    "muse_spark_vision": lambda m: {"pixel_values": noise(48, 1176), "grid_thw": torch.tensor([[1, 4, 12]])},
    "neucodec": lambda m: decoder,
    "xcodec2": lambda m: decoder,
    "paddleocr_vl_vision": lambda m: {
        "pixel_values": noise(1, 16, 3, m.config.patch_size, m.config.patch_size),
        "grid_thw": torch.tensor([[1, 4, 4]]),
    },
    "pe_audio": lambda m: {"input_ids": words(1, 12), "input_values": noise(1, 1, 16_000)},
    "pi0": lambda m: after_words,
    "pocket_tts_audio_tokenizer_decoder": lambda m: {"latents": noise(1, m.config.hidden_size, 6)},
    "qwen2_5_omni": lambda m: parts_of_omni,
    "qwen2_5_omni_dit": denoised,
    "qwen2_5_omni_token2wav": lambda m: {
        "code": words(1, 12), "conditioning": noise(1, m.code2wav_dit_model.config.enc_emb_dim), "num_steps": 2,
        "reference_mel": noise(1, 24, m.code2wav_dit_model.config.mel_dim),
    },
    "qwen2_5_omni_talker": lambda m: {"inputs_embeds": noise(2, 12, m.config.embedding_size)},
    "qwen3_omni_moe": lambda m: words_and_waves,
    "qwen3_omni_moe_code2wav": lambda m: {"inputs_embeds": noise(2, 12, m.config.hidden_size)},
    "edgetam_video": lambda m: memory,
    "sam2_video": lambda m: memory,
    "sam3": described,
    "sam3_tracker_video": lambda m: memory,
    "t5gemma2_decoder": lambda m: {
        "input_ids": words(2, 12), "encoder_hidden_states": noise(2, 12, m.config.hidden_size),
    },
    "sam3_lite_text": described,
    "sam3_tracker": lambda m: {"pixel_values": noise(1, 3, *[m.config.vision_config.backbone_config.image_size] * 2)},
    "seamless_m4t": lambda m: {"input_features": noise(1, 64, 160), "decoder_input_ids": words(1, 12)},
    "timesfm2_5": lambda m: {"past_values": noise(1, 256)},
    "voxtral_realtime": lambda m: {
        "input_ids": words(1, 8),
        "input_features": noise(1, m.config.audio_config.num_mel_bins, 16 * m.config.downsample_factor),
    },
    "voxtral_realtime_text": lambda m: {"input_ids": words(2, 12), "t_cond": noise(2, 1, m.config.hidden_size)},
    "vjepa2_predictor": lambda m: {"pixel_values_videos": noise(1, 4, 3, 64, 64)},
}  # fmt: skip


def inputs_for(model_type: str, model: nn.Module) -> Any:
    """Inputs with which the model reaches its attentions, though perhaps not its end."""
    made.manual_seed(0)
    model_type = model_type.removesuffix(".indexer")
    if model_type in INPUTS:
        return INPUTS[model_type](model)
    try:
        return tiny_inputs(model)
    except Exception:
        return next(iter(candidates(model)), {})


def run(model: nn.Module, inputs: Any) -> list[Tensor]:
    """The model's outputs for inputs, or what a function that runs a part of it returns."""
    made.manual_seed(1)
    if not callable(inputs):
        return outputs(model, inputs)
    with quiet(), torch.no_grad():
        return inputs(model)  # type: ignore[no-any-return]
