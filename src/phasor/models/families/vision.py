"""Vision towers, one line each: config class and class that rotates, default sizes, and what the code does.

Everything here was read in transformers 5.23 (``models/*/configuration_*.py`` and ``modeling_*.py``).
"""

from typing import Any

from ..reading.custom_parser import Beside
from ..reading.grid import PLAIN, SHORT, Grid, GridNames
from ..reading.model_row import Row
from ..reading.planes import (
    CENTRES,
    centres,
    one_ladder,
    plane_alternating,
    plane_blocks,
    plane_interleaved,
    plane_swapped,
    plane_swapped_interleaved,
    space,
    space_tiled,
)
from ..weights import Rows, Weights
from .products import COMPLEX
from .vision_custom import PREDICTOR
from .weight_names import LINEAR, MEMORY_ATTENTION, STACKED

MEMORY: GridNames = (
    ("memory_attention_hidden_size",),
    ("memory_attention_num_attention_heads",),
    ("memory_attention_num_layers",),
)
EMBED_DIM: GridNames = (("embed_dim",), *SHORT[1:])
DOTS: GridNames = (("hidden_size", "embed_dim"), ("num_attention_heads", "num_heads"), ("num_hidden_layers",))
KIMI: GridNames = (
    ("hidden_size", "vt_hidden_size"),
    ("num_attention_heads", "vt_num_attention_heads"),
    ("num_hidden_layers", "vt_num_hidden_layers"),
)
PLUS_ONE = ("positions are (column + 1, row + 1)",)
LEARNED_CLASS = ("the class token, which comes first, turns by trained angles (class_pos_emb), not by a position",)
OTHER_TOKENS = ("positions are (row + 1, column + 1); tokens that are no patches stand at (0, 0)",)
QUERIES = "the last num_blocks layers have num_queries more tokens in front, which are not rotated either"
NO_ROTATION = (
    "no rotation: cos and sin in the order of halves meet interleaved pairs, so the members of a pair turn by "
    "different angles and norms are not kept",
    "its code forms frequencies and angles in the dtype of q: below float32 they differ from these",
)
MEMORY_KEYS = (
    "positions are (column, row)",
    "keys of the memory repeat the positions of a frame for each frame; object pointers, at the end, are not rotated",
)
GROUPS = "in each group of memory keys only the last ones are rotated, on a grid of memory_attention_rope_k_sizes"


def convolutions(count: int) -> list[str]:
    """LFM3's tower: attention in layers 2, 4, 6, …

    >>> convolutions(4)
    ['conv', 'conv', 'full_attention', 'conv']
    """
    return ["conv" if i < 2 or i % 2 else "full_attention" for i in range(count)]


def windows(count: int) -> list[str]:
    """The Muse towers: windows, except in every fourth layer and in the last.

    >>> windows(6)[2:]
    ['window_attention', 'full_attention', 'window_attention', 'full_attention']
    """
    return ["window_attention" if (i + 1) % 4 and i + 1 < count else "full_attention" for i in range(count)]


def _vision(prefix: str, sizes: tuple[int, int, int], names: GridNames = PLAIN, **more: Any) -> Grid:
    return Grid(config=f"{prefix}VisionConfig", code=f"{prefix}VisionRotaryEmbedding", sizes=sizes, names=names, **more)


def _memory(prefix: str, layers: int, *notes: str) -> Grid:
    """Attention over the memory of a video; its sizes stand in the config of the whole model."""
    return Grid(
        config=f"{prefix}Config", code=f"{prefix}VisionRotaryEmbedding", sizes=(256, 1, layers), names=MEMORY,
        layout=plane_interleaved, downsample="memory_attention_downsample_rate",
        base_names=("rope_theta", "memory_attention_rope_theta"), notes=(*MEMORY_KEYS, *notes),
        weights=MEMORY_ATTENTION,
    )  # fmt: skip


def _centred(config: str, code: str, sizes: tuple[int, int, int], registers: int, *notes: str, **more: Any) -> Grid:
    """DINOv3 and its heirs: a class token and registers, then patches at real coordinates."""
    return Grid(
        config=config, code=code, sizes=sizes, layout=centres, base=100.0, tables="activation", prefix=1,
        registers=registers, notes=(CENTRES, *notes), **more,
    )  # fmt: skip


# fmt: off
ROWS: dict[str, Row] = {
    # positions (row, column); a block of pairs for each; halves; float32 tables
    "cohere_compass_vision": _vision("CohereCompass", (1152, 16, 27), SHORT, weights=STACKED),
    "dots3_note_vision_encoder": _vision("Dots3Note", (1536, 24, 42), DOTS, weights=STACKED),
    "ernie4_5_vl_moe_vision": _vision("Ernie4_5_VLMoe", (1280, 16, 32), SHORT, weights=STACKED),
    "exaone4_5_vision": _vision("Exaone4_5_", (3584, 16, 32), SHORT, kv_heads=8, weights=STACKED),
    "glm4v_moe_vision": _vision("Glm4vMoe", (1536, 12, 24), SHORT, weights=STACKED),
    "glm4v_vision": _vision("Glm4v", (1536, 12, 24), SHORT, weights=STACKED),
    "glm5_next_vision": _vision("Glm5Next", (1024, 16, 24), SHORT, weights=STACKED),
    "glm_ocr_vision": _vision("GlmOcr", (1024, 16, 24), SHORT, weights=STACKED),
    "lfm3_vl_vision": _vision("Lfm3Vl", (1024, 16, 14), base=1_000_000.0, kv_heads=8, kinds=convolutions),
    "mlcd_vision_model": Grid(config="MLCDVisionConfig", code="MLCDRotaryEmbedding", sizes=(1664, 16, 48),
        notes=LEARNED_CLASS),
    "paddleocr_vl_vision": _vision("PaddleOCR", (1152, 16, 27)),
    "qwen2_5_omni_vision_encoder": Grid(config="Qwen2_5OmniVisionEncoderConfig",
        code="Qwen2_5OmniVisionRotaryEmbedding", sizes=(3584, 16, 32), names=SHORT,
            weights=Weights(attention=("blocks.{}.attn",), rows=(Rows("q", "q"), Rows("k", "k")))),
    "qwen2_5_vl_vision": _vision("Qwen2_5_VL", (3584, 16, 32), SHORT, weights=STACKED),
    "qwen2_vl_vision": _vision("Qwen2VL", (1280, 16, 32), EMBED_DIM, weights=STACKED),
    "qwen3_5_moe_vision": _vision("Qwen3_5Moe", (1152, 16, 27), SHORT, weights=STACKED),
    "qwen3_5_vision": _vision("Qwen3_5", (1152, 16, 27), SHORT, weights=STACKED),
    "qwen3_omni_moe_vision_encoder": Grid(config="Qwen3OmniMoeVisionEncoderConfig",
        code="Qwen3OmniMoeVisionRotaryEmbedding", sizes=(1152, 16, 27), names=SHORT, weights=STACKED),
    "qwen3_vl_moe_vision": _vision("Qwen3VLMoe", (1152, 16, 27), SHORT, weights=STACKED),
    "qwen3_vl_vision": _vision("Qwen3VL", (1152, 16, 27), SHORT, weights=STACKED),
    "qwen4_exp_vision": _vision("Qwen4Exp", (1152, 16, 27), SHORT, weights=STACKED),
    "video_llama_3_vision": _vision("VideoLlama3", (768, 12, 12)),
    # the same layout, other positions or tables
    "muse_glimmer_vision": _vision("MuseGlimmer", (1536, 16, 50), tables="rounded", kinds=windows, notes=PLUS_ONE,
        weights=Weights(attention=("layers.{}.attn",))),
    "muse_spark_vision": _vision("MuseSpark", (1536, 16, 50), tables="rounded", kinds=windows, notes=PLUS_ONE,
        weights=Weights(attention=("layers.{}.attn",))),
    "dinov3_vit": _centred("DINOv3ViTConfig", "DINOv3ViTRopePositionEmbedding", (384, 6, 12), 0,
        dicts=(), weights=Weights(attention=("layer.{}.attention",))),
    "eomt_dinov3": _centred("EomtDinov3Config", "EomtDinov3RotaryEmbedding", (1024, 16, 24), 4, QUERIES,
        weights=Weights(attention=("layers.{}.attention",))),
    # other orders of the pairs
    "gemma4_vision": _vision("Gemma4", (768, 12, 16), layout=plane_blocks, base=100.0, tables="activation",
        kv_heads=12, head_dim=64, notes=("positions are (column, row)",), weights=Weights(rows=LINEAR)),
    "kimi_k25_vision": _vision("Kimi_K25", (1152, 16, 27), KIMI, layout=plane_alternating,
        weights=Weights(attention=("layers.{}.attn",)), published=Weights(attention=("blocks.{}",), rows=(Rows("wqkv",
        "qkv"),), source="read")),
    "minimax_m3_vl_vision": _vision("MiniMaxM3VL", (1280, 16, 32), layout=space, tables="activation"),
    "pixtral": _vision("Pixtral", (1024, 16, 24), layout=one_ladder, tables="activation",
        weights=Weights(attention=("layers.{}.attention",))),
    "step3p5_vision": _vision("Step3p7", (1536, 16, 47), layout=plane_swapped,
        published=Weights(attention=("transformer.resblocks.{}.attn",), rows=(Rows("in_proj_weight.", "qkv"),
        Rows("in_proj_bias.", "qkv", always=False)), source="read")),
    # neighbouring channels
    "inkling2_vision": _vision("Inkling2", (1024, 16, 23), layout=plane_swapped_interleaved, notes=OTHER_TOKENS),
    "llama4_vision_model": _vision("Llama4", (768, 16, 34), layout=plane_interleaved, suffix=1,
        notes=(*PLUS_ONE, "the class token, which comes last, is not rotated", COMPLEX)),
    "edgetam_video": _memory("EdgeTamVideo", 2, GROUPS),
    "sam2_video": _memory("Sam2Video", 4),
    "sam3_tracker_video": _memory("Sam3TrackerVideo", 4),
    "vjepa2": Grid(base_names=(), dicts=(), config="VJEPA2Config", code="VJEPA2RopeAttention", sizes=(1024, 16, 24),
        layout=space_tiled,
        tables="activation",
        notes=NO_ROTATION, inner={"predictor": Beside(PREDICTOR)},
            weights=Weights(attention=("encoder.layer.{}.attention",), rows=(Rows("query", "q"), Rows("key", "k")))),
}
# fmt: on
