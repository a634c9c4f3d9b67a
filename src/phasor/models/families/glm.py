"""GLM and ChatGLM."""

from dataclasses import replace

from ...positions import Rule
from ..reading.axes import sections
from ..reading.indexer import Indexer
from ..reading.keys import Keys
from ..reading.layers import BY_NAME, Layers, alike
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import Frame
from ..reading.text import Text
from ..reading.text_row import ANY_NAMES, Facts, Rope
from ..weights import Rows, Weights
from .weight_names import LATENT, LIGHTNING

FRAMES = Rule(per_frame=True)
GLM_ASR = {
    "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4, "num_hidden_layers": 28,
    "max_position_embeddings": 8192, "rope_parameters": {"rope_theta": 10_000.0, "rope_type": "default"},
}  # fmt: skip
CHATGLM_6B = ("the first ChatGLM-6B forms its angles in float16; this spec has the ladder without that rounding",)


def two_dimensional(facts: Facts, keys: Keys) -> Facts:
    """ChatGLM-6B turns the two halves of each head by two positions; ChatGLM2 turns the first half by one."""
    if keys.flag("original_rope") is False:
        raise ValueError("original_rope is false: that layout of ChatGLM is not known; describe it with RotarySpec")
    keys.explain("interleaved pairs", "original_rope")
    if keys.flag("position_encoding_2d"):
        keys.explain("position and block position, each for one half of the head, in halves", "position_encoding_2d")
        return replace(facts, partial=1.0, interleaved=False, blocks=2, notes=CHATGLM_6B)
    keys.explain("off", "position_encoding_2d")
    return facts


# fmt: off
ROWS: dict[str, Row] = {
    "chatglm": Text("ChatGLMConfig", Rope(10_000.0, top=()), dicts=(), shares=(), scaled=False,
        names=replace(ANY_NAMES, kv_heads=("multi_query_group_num",), length=("seq_length", "max_sequence_length")),
        base_factor="rope_ratio", partial=0.5, interleaved=True, before=two_dimensional,
            weights=Weights(attention=("encoder.layers.{}.self_attention",), rows=(Rows("query_key_value", "qkv",
            blocks="unshared"),), source="read"), published=Weights(attention=("layers.{}.attention",),
            rows=(Rows("query_key_value", "qkv", blocks="unshared"),), source="read")),
    "glm": Text("GlmConfig", 10_000.0, (4096, 32, 2, 40, 128, 131_072), partial=0.5, interleaved=True),
    "glm4": Text("Glm4Config", 10_000.0, (4096, 32, 2, 40, 128, 131_072), partial=0.5, interleaved=True),
    "glm46v": Frame(parts={"text_config": PartOf("glm4v_text"), "vision_config": PartOf("glm4v_vision")},
        positions=FRAMES),
    "glm4_moe": Text("Glm4MoeConfig", 10_000.0, (4096, 96, 8, 46, None, 131_072), partial=0.5, odd=True,
        rounded_down=True),
    "glm4_moe_lite": Text("Glm4MoeLiteConfig", 10_000.0, (2048, 20, 20, 47, None, 202_752), mla=(192, 64),
        interleave_key=True, interleaved=True, permuted=True, weights=Weights(rows=LATENT)),
    "glm4v": Frame(positions=FRAMES),
    "glm4v_moe": Frame(positions=FRAMES),
    "glm4v_moe_text": Text("Glm4vMoeTextConfig", 10_000.0, (4096, 96, 8, 46, None, 65_536), partial=0.5,
        axes=sections(8, 12, 12)),
    "glm4v_text": Text("Glm4vTextConfig", 10_000.0, (4096, 32, 2, 40, None, 32_768), partial=1.0, interleaved=True,
        axes=sections(8, 12, 12)),
    "glm_image": Frame(positions=Rule(merge=1, padding=1)),
    "glm_image_text": Text("GlmImageTextConfig", 10_000.0, (4096, 32, 2, 40, None, 131_072), partial=1.0,
        axes=sections(8, 12, 12)),
    "glm_moe_dsa": Text("GlmMoeDsaConfig", 10_000.0, (6144, 64, 64, 78, None, 202_752),
        layers=Layers(alike("indexed_attention"), BY_NAME, kinds=("indexed_attention",)), mla=(192, 64),
        interleaved=True, permuted=True, inner={"indexer": Indexer(128, 32, interleaved=True, permuted=True,
            weights=LIGHTNING)}, weights=Weights(rows=LATENT)),
    "glm_ocr": Frame(positions=FRAMES),
    "glm_ocr_text": Text("GlmOcrTextConfig", 10_000.0, (1024, 16, 8, 16, None, 131_072), partial=1.0,
        interleaved=True, axes=sections(8, 12, 12)),
    "glmasr": Frame(
        parts={"text_config": PartOf("llama", GLM_ASR)}),
    "glmga": Frame(parts={"text_config": PartOf("glm4v_text"), "vision_config": PartOf("glm4v_vision")}),
}
# fmt: on
