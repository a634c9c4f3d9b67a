"""Qwen, from the dynamic NTK of the first to interleaved sections."""

from dataclasses import replace
from typing import Any

from ...positions import Rule
from ...rotary.model_rotary import ModelRotary
from ...rotary.scaling import SteppedNTK
from ..reading.axes import sections, striped
from ..reading.indexer import Indexer
from ..reading.keys import Keys, Reading
from ..reading.layers import BY_NAME, LISTED, Layers, every
from ..reading.row import CompositeModel, PartOf, Row, always, with_text
from ..reading.text import TextModel
from ..reading.text_row import ANY_NAMES, Rope, SpecFields
from ..weights import Gguf, Rows, Weights
from .weight_names import GATED

FRAMES = Rule(per_frame=True)
COSMOS3 = Rope(100_000_000.0, {"mrope_section": [24, 20, 20]})
POOLED = ("keys are pooled and stand at the first position of their block",)


def stepped(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """Qwen-1's dynamic NTK, whose trained length is ``seq_length`` and not ``max_position_embeddings``."""
    if not reading.keys.flag("use_dynamic_ntk"):
        reading.keys.explain("no dynamic NTK", "use_dynamic_ntk")
        return fields
    length = reading.keys.whole("seq_length")
    if length is None:
        raise ValueError(f"{reading.path}seq_length is missing: use_dynamic_ntk counts from it; add it")
    reading.keys.explain("stepped NTK scaling", "use_dynamic_ntk")
    reading.keys.explain(f"original_max_position {length}", "seq_length")
    return {**fields, "scaling": SteppedNTK(length)}


def into_flags(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `stepped` reads."""
    scaling = next(iter(model.distinct)).scaling
    if isinstance(scaling, SteppedNTK):
        data.update(use_dynamic_ntk=True, seq_length=scaling.original_max_position)
    elif data.get("use_dynamic_ntk"):
        data["use_dynamic_ntk"] = False


def logn(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Qwen-1 scales its queries beyond the trained length."""
    text = "queries beyond seq_length are scaled by log(position) / log(seq_length)"
    scaled = keys.flag("use_logn_attn")
    keys.explain(text if scaled else "off", "use_logn_attn")
    return replace(model, notes=(*model.notes, text)) if scaled else model


# fmt: off
ROWS: dict[str, Row] = {
    **with_text("qwen3_5_text", "jev"),
    **with_text("qwen2", "qwen2_audio", "video_llama_3"),
    **with_text("qwen3", "qwen3_asr"),
    "cosmos3_edge": CompositeModel(positions=FRAMES),
    "cosmos3_edge_text": TextModel("Cosmos3EdgeTextConfig", rope=COSMOS3, hidden=2048, heads=16, kv_heads=8, layers=28,
        head_dim=128, length=131_072, scaled=False, axes=striped(24, 20, 20), published=Weights(rows=(Rows("to_q",
        "q"), Rows("to_k", "k")), source="read")),
    "cosmos3_omni": CompositeModel(parts={"vision_config": always("qwen3_vl_vision"),
        "text_config": PartOf("qwen3_vl_text")}, positions=FRAMES),
    "qwen": TextModel("QWenConfig", in_transformers=False, rope=Rope(10_000.0, top=("rotary_emb_base",)),
        names=ANY_NAMES, dicts=(), shares=("rotary_pct",), partial=1.0, tables="float32", adjust=stepped, after=logn,
        write=into_flags, weights=Weights(attention=("h.{}.attn",), rows=(Rows("c_attn", "qkv"),), source="read")),
    "qwen2": TextModel("Qwen2Config", base=10_000.0, hidden=4096, heads=32, kv_heads=32, layers=32, length=32_768,
        layer_types=LISTED, gguf=Gguf("qwen2", interleaved=False)),
    "qwen2_5_omni": CompositeModel(parts={"talker_config": always("qwen2_5_omni_talker"),
        "thinker_config": always("qwen2_5_omni_thinker"), "token2wav_config": always("qwen2_5_omni_token2wav")},
        positions=Rule(after="largest", time="clock", rate=25, mix="chunks", shared_marks=True, padding=1)),
    "qwen2_5_omni_talker": TextModel("Qwen2_5OmniTalkerConfig", base=1_000_000.0, hidden=3584, heads=28, kv_heads=4,
        layers=28, head_dim=128, length=32_768, scheme_names={"mrope": "default"}, layer_types=LISTED,
        axes=sections(16, 24, 24)),
    "qwen2_5_omni_text": TextModel("Qwen2_5OmniTextConfig", base=1_000_000.0, hidden=3584, heads=28, kv_heads=4,
        layers=28, length=32_768, scheme_names={"mrope": "default"}, layer_types=LISTED, axes=sections(16, 24, 24)),
    "qwen2_5_omni_thinker": CompositeModel(parts={"text_config": always("qwen2_5_omni_text"),
        "vision_config": always("qwen2_5_omni_vision_encoder")}),
    "qwen2_5_omni_token2wav": CompositeModel(parts={"dit_config": always("qwen2_5_omni_dit")}),
    "qwen2_5_vl": CompositeModel(positions=Rule(time="interval", rate=4)),
    "qwen2_5_vl_text": TextModel("Qwen2_5_VLTextConfig", base=1_000_000.0, hidden=8192, heads=64, kv_heads=8,
        layers=80, length=32_768, scheme_names={"mrope": "default"}, layer_types=LISTED, axes=sections(16, 24, 24)),
    "qwen2_moe": TextModel("Qwen2MoeConfig", base=10_000.0, hidden=2048, heads=16, kv_heads=16, layers=24,
        length=32_768, layer_types=LISTED),
    "qwen2_vl": CompositeModel(positions=Rule()),
    "qwen2_vl_text": TextModel("Qwen2VLTextConfig", base=1_000_000.0, hidden=8192, heads=64, kv_heads=8, layers=80,
        length=32_768, scheme_names={"mrope": "default"}, layer_types=LISTED, axes=sections(16, 24, 24)),
    "qwen3": TextModel("Qwen3Config", base=10_000.0, hidden=4096, heads=32, kv_heads=32, layers=32, head_dim=128,
        length=32_768, layer_types=LISTED, gguf=Gguf("qwen3", interleaved=False)),
    "qwen3_5": CompositeModel(positions=FRAMES),
    "qwen3_5_moe": CompositeModel(positions=FRAMES),
    "qwen3_5_moe_text": TextModel("Qwen3_5MoeTextConfig", base=10_000.0, hidden=2048, heads=16, kv_heads=2, layers=40,
        head_dim=256, length=32_768, layer_types=Layers(every(4, "full_attention_interval", others="linear_attention"),
        BY_NAME, kinds=("linear_attention",)), partial=0.25, axes=striped(11, 11, 10), weights=GATED),
    "qwen3_5_text": TextModel("Qwen3_5TextConfig", base=10_000.0, hidden=4096, heads=16, kv_heads=4, layers=32,
        head_dim=256, length=32_768, layer_types=Layers(every(4, "full_attention_interval", others="linear_attention"),
        BY_NAME, kinds=("linear_attention",)), partial=0.25, axes=striped(11, 11, 10), weights=GATED),
    "qwen3_asr_text": TextModel("Qwen3ASRTextConfig", in_transformers=False, base=5_000_000.0, layer_types=LISTED,
        axes=striped(24, 20, 20), weights=Weights(source="read")),
    "qwen3_moe": TextModel("Qwen3MoeConfig", base=10_000.0, hidden=2048, heads=32, kv_heads=4, layers=24,
        length=32_768),
    "qwen3_next": TextModel("Qwen3NextConfig", base=10_000.0, hidden=2048, heads=16, kv_heads=2, layers=48,
        head_dim=256, length=32_768, layer_types=Layers(every(4, "full_attention_interval", others="linear_attention"),
        BY_NAME, kinds=("linear_attention",)), partial=0.25, weights=GATED),
    "qwen3_omni_moe": CompositeModel(parts={"code2wav_config": always("qwen3_omni_moe_code2wav"),
        "thinker_config": always("qwen3_omni_moe_thinker")},
        positions=Rule(after="largest", time="clock", rate=25, whole=False, mix="time")),
    "qwen3_omni_moe_talker_code_predictor": TextModel("Qwen3OmniMoeTalkerCodePredictorConfig", base=10_000.0,
        hidden=1024, heads=16, kv_heads=8, layers=5, head_dim=128, length=32_768, layer_types=LISTED),
    "qwen3_omni_moe_talker_text": TextModel("Qwen3OmniMoeTalkerTextConfig", base=10_000.0, hidden=1024, heads=16,
        kv_heads=2, layers=20, length=32_768, axes=striped(24, 20, 20)),
    "qwen3_omni_moe_text": TextModel("Qwen3OmniMoeTextConfig", base=1_000_000.0, hidden=2048, heads=28, kv_heads=4,
        layers=28, length=32_768, axes=striped(24, 20, 20)),
    "qwen3_omni_moe_thinker": CompositeModel(parts={"text_config": always("qwen3_omni_moe_text"),
        "vision_config": always("qwen3_omni_moe_vision_encoder")}),
    "qwen3_vl": CompositeModel(positions=FRAMES),
    "qwen3_vl_moe": CompositeModel(positions=FRAMES),
    "qwen3_vl_moe_text": TextModel("Qwen3VLMoeTextConfig", base=500_000.0, hidden=2048, heads=16, kv_heads=16,
        layers=24, length=128_000, axes=striped(24, 20, 20)),
    "qwen3_vl_text": TextModel("Qwen3VLTextConfig", base=500_000.0, hidden=4096, heads=32, kv_heads=32, layers=32,
        head_dim=128, length=128_000, axes=striped(24, 20, 20)),
    "qwen4_exp": CompositeModel(positions=FRAMES),
    "qwen4_exp_text": TextModel("Qwen4ExpTextConfig", base=10_000.0, hidden=2048, heads=16, kv_heads=2, layers=40,
        head_dim=256, length=32_768, layer_types=Layers(every(4, "full_attention_interval", others="linear_attention",
        full="indexed_attention"), BY_NAME, kinds=("linear_attention", "indexed_attention")), partial=1.0,
        axes=striped(11, 11, 10), sub_models={"indexer": Indexer(None, None, names=("indexer_head_dim",
        "indexer_n_heads"), notes=POOLED, weights=Weights(attention=("layers.{}.self_attn.indexer",),
        rows=(Rows("index_qk_proj", "qk"),), q_norms=("q_layernorm",), k_norms=("k_layernorm",)))}, weights=GATED),
}
# fmt: on
