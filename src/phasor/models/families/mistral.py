"""Mistral."""

from dataclasses import replace
from typing import Any

from ...rotary.model_rotary import ModelRotary
from ...rotary.temperature import LearnedLog, LogFloor
from ..reading.indexer import Indexer
from ..reading.keys import Keys, Reading, agreed
from ..reading.layers import BY_NAME, LISTED, WINDOWED, Layers, alike, by_no_rope_layers, into_no_rope_layers
from ..reading.row import CompositeModel, PartOf, Row, with_text
from ..reading.schemes import ORIGINAL
from ..reading.text import TextModel
from ..reading.text_row import Rope, SpecFields, TextRow
from ..weights import Gguf, Weights
from .weight_names import LATENT, LIGHTNING

MISTRAL = "mistral"  # for whoever writes a config of this type
YARN = {
    "rope_type": "yarn", "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}  # fmt: skip
MINISTRAL3 = Rope(1_000_000.0, {**YARN, "factor": 16.0, "original_max_position_embeddings": 16_384}, bare=10_000.0)
MISTRAL4 = Rope(
    10_000.0, {**YARN, "factor": 128.0, "original_max_position_embeddings": 8192, "partial_rotary_factor": 0.5}
)
MISTRAL_LARGE4 = Rope(
    10_000.0,
    {
        "rope_type": "yarn", "factor": 2048.0, "original_max_position_embeddings": 512, "beta_fast": 32.0,
        "beta_slow": 1.0, "attention_factor": 1.0,
    },
)  # fmt: skip


def by_beta(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """Ministral 3 and Mistral 4: ``llama_4_scaling_beta`` in the rope parameters, over the trained length."""
    beta = rope.number("llama_4_scaling_beta", at_least=0)
    rope.number("max_position_embeddings", above=0)
    rope.explain("no effect: repeats the length of the config", "max_position_embeddings")
    if beta is None:
        return fields
    length = rope.whole(ORIGINAL)
    if length is None:
        raise ValueError(f"{rope.places[0][0]}{ORIGINAL} is missing: llama_4_scaling_beta counts in it; add it")
    rope.explain(f"queries grow with beta {beta:.10g} per {length} positions", "llama_4_scaling_beta")
    return {**fields, "temperature": LogFloor(beta, length)} if beta else fields


def into_beta(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `by_beta` reads."""
    scheme = next(iter(model.temperatures), None)
    for rope in (data.get("rope_parameters"), data.get("rope_scaling")):
        if isinstance(rope, dict) and isinstance(scheme, LogFloor):
            rope["llama_4_scaling_beta"] = scheme.beta
        elif isinstance(rope, dict):
            rope.pop("llama_4_scaling_beta", None)


def learned(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """Mistral Large 4 learns its frequencies."""
    return {**fields, "learned": True}


def learned_log(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Mistral Large 4 learns how its queries grow."""
    return replace(model, temperatures=(LearnedLog(),) * len(model.layers))


def whole_heads(row: TextRow, keys: Keys) -> TextRow:
    """Mistral 4 takes the rotated share of head_dim, which must be the width of its heads."""
    nope, rope = (keys.size(name) or 64 for name in ("qk_nope_head_dim", "qk_rope_head_dim"))
    agreed([("qk_nope_head_dim + qk_rope_head_dim", nope + rope), *keys.entries("head_dim")])
    return row


TOO_MANY = "its class then forms frequencies for whole heads, by which its attention cannot rotate a part of them"

# fmt: off
ROWS: dict[str, Row] = {
    **with_text("mistral", "idefics2"),
    "lighton_ocr": CompositeModel(parts={"vision_config": PartOf("pixtral"), "text_config": PartOf("qwen3")}),
    "ministral": TextModel("MinistralConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=8, layers=32,
        length=131_072, layer_types=LISTED),
    "ministral3": TextModel("Ministral3Config", rope=MINISTRAL3, hidden=4096, heads=32, kv_heads=8, layers=34,
        head_dim=128, length=262_144, adjust=by_beta, write=into_beta),
    MISTRAL: TextModel("MistralConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=8, layers=32, length=131_072,
        layer_types=WINDOWED, gguf=Gguf("llama", interleaved=True)),
    "mistral3": CompositeModel(parts={"text_config": PartOf("mistral"), "vision_config": PartOf("pixtral")}),
    "mistral4": TextModel("Mistral4Config", rope=MISTRAL4, hidden=4096, heads=32, kv_heads=32, layers=36,
        length=1_048_576, mla=(64, 64), interleave_key=True, interleaved=True, permuted=True, adjust=by_beta,
        write=into_beta, before=whole_heads, known_deviations={"frequencies, theirs": TOO_MANY},
        weights=Weights(rows=LATENT)),
    "mistral_large4": CompositeModel(parts={"vision_config": PartOf("pixtral")}),
    "mistral_large4_text": TextModel("MistralLarge4TextConfig", rope=MISTRAL_LARGE4, hidden=6144, heads=64,
        kv_heads=64, layers=72, length=1_048_576, layer_types=Layers(alike("indexed_attention"), BY_NAME,
        kinds=("indexed_attention",)), rotates=by_no_rope_layers, mla=(64, 64), interleaved=True, permuted=True,
        adjust=learned, after=learned_log, write=into_no_rope_layers,
        notes=("layers that take keys from another layer (kv_source_layers) rotate q only",),
        sub_models={"indexer": Indexer(128, 32, interleaved=True, permuted=True, weights=LIGHTNING)},
        weights=Weights(rows=LATENT, may_lack=("k",), frequencies="rotary_emb.alpha")),
    "mixtral": TextModel("MixtralConfig", base=1_000_000.0, hidden=4096, heads=32, kv_heads=8, layers=32,
        length=131_072, layer_types=WINDOWED),
    "voxtral": CompositeModel(parts={"text_config": PartOf("llama", {"hidden_size": 3072, "num_key_value_heads": 8,
        "num_hidden_layers": 30, "head_dim": 128, "max_position_embeddings": 131_072, "rope_theta": 100_000_000.0})}),
    "voxtral_realtime": CompositeModel(parts={"text_config": PartOf("voxtral_realtime_text", {"hidden_size": 3072,
        "num_hidden_layers": 26, "head_dim": 128, "rope_theta": 1_000_000.0})}),
    "voxtral_realtime_text": TextModel("VoxtralRealtimeTextConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=8,
        layers=32, length=131_072),
}
# fmt: on
