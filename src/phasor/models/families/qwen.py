"""Qwen, from the dynamic NTK of the first to interleaved sections."""

from dataclasses import replace
from typing import Any

from ...positions import Rule
from ...rotary.scaling import Scaling, SteppedNTK
from ..reading.axes import sections, striped
from ..reading.indexer import Indexer
from ..reading.keys import Keys
from ..reading.layers import BY_NAME, LISTED, Layers, every
from ..reading.model import ModelRotary
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import Frame
from ..reading.spec_fields import Reader
from ..reading.text import Text
from ..reading.text_row import ANY_NAMES, Rope
from ..weights import Gguf, Rows, Weights
from .weight_names import GATED

FRAMES = Rule(per_frame=True)
COSMOS3 = Rope(100_000_000.0, {"mrope_section": [24, 20, 20]})
POOLED = ("keys are pooled and stand at the first position of their block",)


def stepped(reader: Reader, scaling: Scaling | None) -> Scaling | None:
    """Qwen-1's dynamic NTK, whose trained length is ``seq_length`` and not ``max_position_embeddings``."""
    if not reader.keys.flag("use_dynamic_ntk"):
        reader.keys.explain("no dynamic NTK", "use_dynamic_ntk")
        return scaling
    length = reader.keys.whole("seq_length")
    if length is None:
        raise ValueError(f"{reader.path}seq_length is missing: use_dynamic_ntk counts from it; add it")
    reader.keys.explain("stepped NTK scaling", "use_dynamic_ntk")
    reader.keys.explain(f"original_max_position {length}", "seq_length")
    return SteppedNTK(length)


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
    "cosmos3_edge": Frame(positions=FRAMES),
    "cosmos3_edge_text": Text("Cosmos3EdgeTextConfig", COSMOS3, (2048, 16, 8, 28, 128, 131_072),
        scaled=False, axes=striped(24, 20, 20), published=Weights(rows=(Rows("to_q", "q"), Rows("to_k", "k")),
            source="read")),
    "cosmos3_omni": Frame(parts={"vision_config": PartOf("qwen3_vl_vision"), "text_config": PartOf("qwen3_vl_text")},
        positions=FRAMES),
    "jev": Frame(parts={"text_config": PartOf("qwen3_5_text")}),
    "minicpm_ocr": Frame(parts={"text_config": PartOf("qwen3_5_text")}),
    "minicpmv4_6": Frame(parts={"text_config": PartOf("qwen3_5_text")}),
    "minicpmv4_7": Frame(parts={"text_config": PartOf("qwen3_5_text")}),
    "qwen": Text("QWenConfig", Rope(10_000.0, top=("rotary_emb_base",)), names=ANY_NAMES, dicts=(),
        shares=("rotary_pct",),
        partial=1.0, tables="float32", scale=stepped, after=logn, write=into_flags,
            weights=Weights(attention=("h.{}.attn",),
            rows=(Rows("c_attn", "qkv"),), source="read")),
    "qwen2": Text("Qwen2Config", 10_000.0, (4096, 32, 32, 32, None, 32_768), layers=LISTED,
        gguf=Gguf("qwen2", interleaved=False)),
    "qwen2_5_omni": Frame(parts={"talker_config": PartOf("qwen2_5_omni_talker")},
        positions=Rule(after="largest", time="clock", rate=25, mix="chunks", shared_marks=True, padding=1)),
    "qwen2_5_omni_talker": Text("Qwen2_5OmniTalkerConfig", 1_000_000.0, (3584, 28, 4, 28, 128, 32_768),
        spelled={"mrope": "default"}, layers=LISTED, axes=sections(16, 24, 24)),
    "qwen2_5_omni_text": Text("Qwen2_5OmniTextConfig", 1_000_000.0, (3584, 28, 4, 28, None, 32_768),
        spelled={"mrope": "default"}, layers=LISTED, axes=sections(16, 24, 24)),
    "qwen2_5_omni_thinker": Frame(
        parts={"text_config": PartOf("qwen2_5_omni_text"), "vision_config": PartOf("qwen2_5_omni_vision_encoder")}),
    "qwen2_5_omni_token2wav": Frame(parts={"dit_config": PartOf("qwen2_5_omni_dit")}),
    "qwen2_5_vl": Frame(positions=Rule(time="interval", rate=4)),
    "qwen2_5_vl_text": Text("Qwen2_5_VLTextConfig", 1_000_000.0, (8192, 64, 8, 80, None, 32_768),
        spelled={"mrope": "default"}, layers=LISTED, axes=sections(16, 24, 24)),
    "qwen2_audio": Frame(parts={"text_config": PartOf("qwen2")}),
    "qwen2_moe": Text("Qwen2MoeConfig", 10_000.0, (2048, 16, 16, 24, None, 32_768), layers=LISTED),
    "qwen2_vl": Frame(positions=Rule()),
    "qwen2_vl_text": Text("Qwen2VLTextConfig", 1_000_000.0, (8192, 64, 8, 80, None, 32_768),
        spelled={"mrope": "default"}, layers=LISTED, axes=sections(16, 24, 24)),
    "qwen3": Text("Qwen3Config", 10_000.0, (4096, 32, 32, 32, 128, 32_768), layers=LISTED,
        gguf=Gguf("qwen3", interleaved=False)),
    "qwen3_5": Frame(positions=FRAMES),
    "qwen3_5_moe": Frame(positions=FRAMES),
    "qwen3_5_moe_text": Text("Qwen3_5MoeTextConfig", 10_000.0, (2048, 16, 2, 40, 256, 32_768),
        layers=Layers(every(4, "full_attention_interval", others="linear_attention"), BY_NAME,
            kinds=("linear_attention",)),
        partial=0.25, axes=striped(11, 11, 10), weights=GATED),
    "qwen3_5_text": Text("Qwen3_5TextConfig", 10_000.0, (4096, 16, 4, 32, 256, 32_768),
        layers=Layers(every(4, "full_attention_interval", others="linear_attention"), BY_NAME,
            kinds=("linear_attention",)),
        partial=0.25, axes=striped(11, 11, 10), weights=GATED),
    "qwen3_asr": Frame(parts={"text_config": PartOf("qwen3")}),
    "qwen3_asr_text": Text("Qwen3ASRTextConfig", 5_000_000.0, layers=LISTED, axes=striped(24, 20, 20),
        weights=Weights(source="read")),
    "qwen3_moe": Text("Qwen3MoeConfig", 10_000.0, (2048, 32, 4, 24, None, 32_768)),
    "qwen3_next": Text("Qwen3NextConfig", 10_000.0, (2048, 16, 2, 48, 256, 32_768),
        layers=Layers(every(4, "full_attention_interval", others="linear_attention"), BY_NAME,
            kinds=("linear_attention",)),
        partial=0.25, weights=GATED),
    "qwen3_omni_moe": Frame(parts={"code2wav_config": PartOf("qwen3_omni_moe_code2wav")},
        positions=Rule(after="largest", time="clock", rate=25, whole=False, mix="time")),
    "qwen3_omni_moe_talker_code_predictor": Text("Qwen3OmniMoeTalkerCodePredictorConfig", 10_000.0,
        (1024, 16, 8, 5, 128, 32_768), layers=LISTED),
    "qwen3_omni_moe_talker_text": Text("Qwen3OmniMoeTalkerTextConfig", 10_000.0, (1024, 16, 2, 20, None, 32_768),
        axes=striped(24, 20, 20)),
    "qwen3_omni_moe_text": Text("Qwen3OmniMoeTextConfig", 1_000_000.0, (2048, 28, 4, 28, None, 32_768),
        axes=striped(24, 20, 20)),
    "qwen3_omni_moe_thinker": Frame(
        parts={"text_config": PartOf("qwen3_omni_moe_text"), "vision_config": PartOf("qwen3_omni_moe_vision_encoder")}),
    "qwen3_vl": Frame(positions=FRAMES),
    "qwen3_vl_moe": Frame(positions=FRAMES),
    "qwen3_vl_moe_text": Text("Qwen3VLMoeTextConfig", 500_000.0, (2048, 16, 16, 24, None, 128_000),
        axes=striped(24, 20, 20)),
    "qwen3_vl_text": Text("Qwen3VLTextConfig", 500_000.0, (4096, 32, 32, 32, 128, 128_000), axes=striped(24, 20, 20)),
    "qwen4_exp": Frame(positions=FRAMES),
    "qwen4_exp_text": Text("Qwen4ExpTextConfig", 10_000.0, (2048, 16, 2, 40, 256, 32_768),
        layers=Layers(every(4, "full_attention_interval", others="linear_attention", full="indexed_attention"),
            BY_NAME, kinds=("linear_attention", "indexed_attention")),
        partial=1.0, axes=striped(11, 11, 10),
        inner={"indexer": Indexer(None, None, names=("indexer_head_dim", "indexer_n_heads"), notes=POOLED,
            weights=Weights(attention=("layers.{}.self_attn.indexer",), rows=(Rows("index_qk_proj", "qk"),),
            q_norms=("q_layernorm",), k_norms=("k_layernorm",)))}, weights=GATED),
    "video_llama_3": Frame(parts={"text_config": PartOf("qwen2")}),
}
# fmt: on
