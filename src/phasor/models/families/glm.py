"""GLM and ChatGLM."""

from dataclasses import replace
from operator import floordiv
from typing import Any

from ...positions import Rule
from ...rotary.axes import Axial
from ...rotary.model_rotary import ModelRotary
from ..reading.axes import sections
from ..reading.indexer import Indexer
from ..reading.keys import Keys, Reading
from ..reading.layers import BY_NAME, Layers, alike
from ..reading.rope import even_width
from ..reading.row import CompositeModel, PartOf, Row
from ..reading.text import TextModel
from ..reading.text_row import ANY_NAMES, Rope, SpecFields, TextRow
from ..weights import Rows, Weights
from .weight_names import LATENT, LIGHTNING

FRAMES = Rule(per_frame=True)
GLM_ASR = {
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 28,
    "max_position_embeddings": 8192, "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
}  # fmt: skip
CHATGLM_6B = ("the first ChatGLM-6B forms its angles in float16; this spec has the ladder without that rounding",)


def two_dimensional(row: TextRow, keys: Keys) -> TextRow:
    """ChatGLM-6B rotates the two halves of each head by two positions; ChatGLM2 rotates the first half by one."""
    if keys.flag("original_rope") is False:
        raise ValueError("original_rope is false: that layout of ChatGLM is not known; describe it with RotarySpec")
    keys.explain("interleaved pairs", "original_rope")
    if keys.flag("position_encoding_2d"):
        keys.explain("position and block position, each for one half of the head, in halves", "position_encoding_2d")
        return replace(row, partial=1.0, interleaved=False, notes=CHATGLM_6B)
    keys.explain("off", "position_encoding_2d")
    return row


def by_ratio(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """ChatGLM states a factor on the base, and ChatGLM-6B has a block of pairs for each of its two positions."""
    base, ratio = fields["base"], reading.keys.number("rope_ratio", above=0)
    if ratio is not None:
        base = float(base * ratio)
        reading.keys.explain(f"base times {ratio:.10g}: {base:.10g}", "rope_ratio")
    if not reading.keys.flag("position_encoding_2d"):
        return {**fields, "base": base}
    return {**fields, "base": base, "blocks": 2, "axes": Axial((fields["rotary_dim"] // 4,) * 2)}


def into_ratio(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `by_ratio` reads of the base."""
    ratio = next(spec.base for spec in model.distinct) / 10_000.0
    if ratio != (data.get("rope_ratio") or 1):
        data["rope_ratio"] = ratio


# fmt: off
ROWS: dict[str, Row] = {
    "chatglm": TextModel("ChatGLMConfig", in_transformers=False, rope=Rope(10_000.0, top=()), dicts=(), shares=(),
        scaled=False, names=replace(ANY_NAMES, kv_heads=("multi_query_group_num",), length=("seq_length",
        "max_sequence_length")), partial=0.5, interleaved=True, before=two_dimensional, adjust=by_ratio,
        write=into_ratio, weights=Weights(attention=("encoder.layers.{}.self_attention",),
        rows=(Rows("query_key_value", "qkv", blocks="unshared"),), source="read"),
        published=Weights(attention=("layers.{}.attention",), rows=(Rows("query_key_value", "qkv",
        blocks="unshared"),), source="read")),
    "glm": TextModel("GlmConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=2, layers=40, head_dim=128,
        length=131_072, partial=0.5, interleaved=True),
    "glm4": TextModel("Glm4Config", base=10_000.0, hidden=4096, heads=32, kv_heads=2, layers=40, head_dim=128,
        length=131_072, partial=0.5, interleaved=True),
    "glm46v": CompositeModel(parts={"text_config": PartOf("glm4v_text"), "vision_config": PartOf("glm4v_vision")},
        positions=FRAMES),
    "glm4_moe": TextModel("Glm4MoeConfig", base=10_000.0, hidden=4096, heads=96, kv_heads=8, layers=46, length=131_072,
        partial=0.5, adjust=even_width, head_dim=floordiv),
    "glm4_moe_lite": TextModel("Glm4MoeLiteConfig", base=10_000.0, hidden=2048, heads=20, kv_heads=20, layers=47,
        length=202_752, mla=(192, 64), interleave_key=True, interleaved=True, permuted=True,
        weights=Weights(rows=LATENT)),
    "glm4v": CompositeModel(positions=FRAMES),
    "glm4v_moe": CompositeModel(positions=FRAMES),
    "glm4v_moe_text": TextModel("Glm4vMoeTextConfig", base=10_000.0, hidden=4096, heads=96, kv_heads=8, layers=46,
        length=65_536, partial=0.5, axes=sections(8, 12, 12)),
    "glm4v_text": TextModel("Glm4vTextConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=2, layers=40,
        length=32_768, partial=1.0, interleaved=True, axes=sections(8, 12, 12)),
    "glm_image": CompositeModel(positions=Rule(merge=1, padding=1)),
    "glm_image_text": TextModel("GlmImageTextConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=2, layers=40,
        length=131_072, partial=1.0, axes=sections(8, 12, 12)),
    "glm_moe_dsa": TextModel("GlmMoeDsaConfig", base=10_000.0, hidden=6144, heads=64, kv_heads=64, layers=78,
        length=202_752, layer_types=Layers(alike("indexed_attention"), BY_NAME, kinds=("indexed_attention",)),
        mla=(192, 64), interleaved=True, permuted=True, sub_models={"indexer": Indexer(128, 32, interleaved=True,
        permuted=True, weights=LIGHTNING)}, weights=Weights(rows=LATENT)),
    "glm_ocr": CompositeModel(positions=FRAMES),
    "glm_ocr_text": TextModel("GlmOcrTextConfig", base=10_000.0, hidden=1024, heads=16, kv_heads=8, layers=16,
        length=131_072, partial=1.0, interleaved=True, axes=sections(8, 12, 12)),
    "glmasr": CompositeModel(parts={"text_config": PartOf("llama", GLM_ASR)}),
    "glmga": CompositeModel(parts={"text_config": PartOf("glm4v_text"), "vision_config": PartOf("glm4v_vision")}),
}
# fmt: on
