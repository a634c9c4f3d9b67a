"""Mistral."""

from dataclasses import replace
from typing import Any

from ...rotary.temperature import LearnedLog, LogFloor, Temperature
from ..reading.indexer import Indexer
from ..reading.keys import Keys, agreed
from ..reading.layers import BY_NAME, LISTED, WINDOWED, Layers, alike, by_no_rope_layers, into_no_rope_layers
from ..reading.model import ModelRotary
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import Frame
from ..reading.schemes import ORIGINAL
from ..reading.text import Text
from ..reading.text_row import Facts, Rope
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


def by_beta(rope: Keys) -> Temperature | None:
    """Ministral 3 and Mistral 4: ``llama_4_scaling_beta`` in the rope parameters, over the trained length."""
    beta = rope.number("llama_4_scaling_beta", at_least=0)
    rope.number("max_position_embeddings", above=0)
    rope.explain("no effect: repeats the length of the config", "max_position_embeddings")
    if beta is None:
        return None
    length = rope.whole(ORIGINAL)
    if length is None:
        raise ValueError(f"{rope.places[0][0]}{ORIGINAL} is missing: llama_4_scaling_beta counts in it; add it")
    rope.explain(f"queries grow with beta {beta:.10g} per {length} positions", "llama_4_scaling_beta")
    return LogFloor(beta, length) if beta else None


def into_beta(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `by_beta` reads."""
    scheme = next(iter(model.temperatures), None)
    for rope in (data.get("rope_parameters"), data.get("rope_scaling")):
        if isinstance(rope, dict) and isinstance(scheme, LogFloor):
            rope["llama_4_scaling_beta"] = scheme.beta
        elif isinstance(rope, dict):
            rope.pop("llama_4_scaling_beta", None)


def learned_log(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Mistral Large 4 learns how its queries grow."""
    return replace(model, temperatures=(LearnedLog(),) * len(model.layers))


def whole_heads(facts: Facts, keys: Keys) -> Facts:
    """Mistral 4 takes the rotated share of head_dim, which must be the width of its heads."""
    nope, rope = (keys.size(name) or 64 for name in ("qk_nope_head_dim", "qk_rope_head_dim"))
    agreed([("qk_nope_head_dim + qk_rope_head_dim", nope + rope), *keys.found("head_dim")])
    return facts


TOO_MANY = "its class then forms frequencies for whole heads, by which its attention cannot turn a part of them"

# fmt: off
ROWS: dict[str, Row] = {
    "idefics2": Frame(parts={"text_config": PartOf("mistral")}),
    "lighton_ocr": Frame(parts={"vision_config": PartOf("pixtral"), "text_config": PartOf("qwen3")}),
    "ministral": Text("MinistralConfig", 10_000.0, (4096, 32, 8, 32, None, 131_072), layers=LISTED),
    "ministral3": Text("Ministral3Config", MINISTRAL3, (4096, 32, 8, 34, 128, 262_144), temperature=by_beta,
        write=into_beta),
    MISTRAL: Text("MistralConfig", 10_000.0, (4096, 32, 8, 32, None, 131_072), layers=WINDOWED,
        gguf=Gguf("llama", interleaved=True)),
    "mistral3": Frame(parts={"text_config": PartOf("mistral"), "vision_config": PartOf("pixtral")}),
    "mistral4": Text("Mistral4Config", MISTRAL4, (4096, 32, 32, 36, None, 1_048_576), mla=(64, 64),
        interleave_key=True, interleaved=True, permuted=True, temperature=by_beta, write=into_beta, before=whole_heads,
        argued={"frequencies, theirs": TOO_MANY},
            weights=Weights(rows=LATENT)),
    "mistral_large4": Frame(parts={"vision_config": PartOf("pixtral")}),
    "mistral_large4_text": Text("MistralLarge4TextConfig", MISTRAL_LARGE4, (6144, 64, 64, 72, None, 1_048_576),
        layers=Layers(alike("indexed_attention"), BY_NAME, kinds=("indexed_attention",)), turns=by_no_rope_layers,
        mla=(64, 64), interleaved=True, permuted=True, learned=True, after=learned_log, write=into_no_rope_layers,
        notes=("layers that take keys from another layer (kv_source_layers) rotate q only",),
        inner={"indexer": Indexer(128, 32, interleaved=True, permuted=True, weights=LIGHTNING)},
            weights=Weights(rows=LATENT, may_lack=("k",), frequencies="rotary_emb.alpha")),
    "mixtral": Text("MixtralConfig", 1_000_000.0, (4096, 32, 8, 32, None, 131_072), layers=WINDOWED),
    "voxtral": Frame(
        parts={"text_config": PartOf("llama", {"hidden_size": 3072, "num_key_value_heads": 8, "num_hidden_layers": 30,
            "head_dim": 128,
            "max_position_embeddings": 131_072, "rope_theta": 100_000_000.0})}),
    "voxtral_realtime": Frame(
        parts={"text_config": PartOf("voxtral_realtime_text", {"hidden_size": 3072, "num_hidden_layers": 26,
            "head_dim": 128,
            "rope_theta": 1_000_000.0})}),
    "voxtral_realtime_text": Text("VoxtralRealtimeTextConfig", 10_000.0, (4096, 32, 8, 32, None, 131_072)),
}
# fmt: on
