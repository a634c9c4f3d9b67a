"""Vision towers, one row each: config class and class that rotates, default sizes, and what the code does.

Everything here was read in transformers 5.23 (``models/*/configuration_*.py`` and ``modeling_*.py``).
"""

from dataclasses import replace
from typing import Any

from ...rotary.axes import Alternating
from ...rotary.model_rotary import ModelRotary
from ...rotary.spec import RotarySpec
from ..reading.keys import agreed, is_list, is_size
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
from ..reading.refusal import Reason, Refused
from ..reading.row import Row
from ..reading.tower import PLAIN, SHORT, CustomParser, GridNames, GridTower, NestedModel, TowerConfig, of_one_spec
from ..weights import Rows, Weights
from .complex_products import COMPLEX
from .weight_names import LINEAR, MEMORY_ATTENTION, STACKED


def sam3(part: TowerConfig) -> ModelRotary:
    """SAM 3: windows have whole positions; layers across the image shrink theirs to the size of a window."""
    grid = GridTower(
        config=part.config,
        code="",
        hidden=1024,
        heads=16,
        layers=32,
        layout=plane_interleaved,
        notes=("positions are (column, row)",),
    )
    model = grid.of(part)
    columns = _side(part, "image_size", 1008) // _side(part, "patch_size", 14)
    window = _side(part, "window_size", 24)
    across = part.keys.wholes("global_attn_indexes")
    if across is None:
        across = [7, 15, 23, 31]
        part.default("global_attn_indexes", str(across))
    part.keys.explain("layers across the whole image", "global_attn_indexes")
    shrunk = f"positions across the whole image are times {window} / {columns}"
    part.keys.explain(shrunk, "window_size", "image_size", "patch_size")
    inside = model.layers[0]
    assert inside is not None
    spread = inside.replace(coordinates="real", position_scale=window / columns)
    kinds = [i in across for i in range(len(model.layers))]
    return replace(
        model,
        layers=tuple(spread if wide else inside for wide in kinds),
        layer_types=tuple("full_attention" if wide else "window_attention" for wide in kinds),
    )


def sapiens2(part: TowerConfig) -> ModelRotary:
    """Sapiens 2: a DINOv3 whose middle layers have fewer key heads."""
    grid = GridTower(
        config=part.config, code="", hidden=1024, heads=16, layers=24, layout=centres, base=100.0, tables="activation",
        prefix=1, registers=8, notes=(CENTRES,),
    )  # fmt: skip
    model = grid.of(replace(part, dicts=()))  # its base stands at the top alone
    count, listed = len(model.layers), "num_key_value_heads_per_layer"
    ends = ("num_first_full_attention_layers", "num_last_full_attention_layers")
    few, first, last = (part.size((name,), 8) for name in ("num_key_value_attention_heads", *ends))
    heads = part.keys.wholes(listed, at_least=1)
    if heads is None:
        heads = [model.num_heads if i < first or i >= count - last else few for i in range(count)]
    part.keys.explain("key heads of each layer", listed, "num_key_value_attention_heads", *ends)
    if len(heads) != count:
        raise ValueError(f"{part.path}{listed} must have one number per layer, {count} here, got {len(heads)}")
    notes = () if len(set(heads)) == 1 else (f"key heads differ by layer: {heads}",)
    return replace(model, num_kv_heads=max(heads), notes=(*model.notes, *notes))


def vjepa2_predictor(part: TowerConfig) -> ModelRotary:
    """V-JEPA 2's predictor, whose sizes stand in the config of the encoder."""
    names = (("pred_hidden_size",), ("pred_num_attention_heads",), ("pred_num_hidden_layers",))
    grid = GridTower(
        config=part.config, code="", hidden=384, heads=12, layers=12, names=names, layout=space_tiled,
        tables="activation", base_names=()
    )  # fmt: skip
    return grid.of(part)


def efficientloftr(part: TowerConfig) -> ModelRotary:
    """EfficientLoFTR rotates the whole hidden size before it is split into heads; rows and columns alternate."""
    names = (("hidden_size",), ("num_attention_heads",), ("num_attention_layers",))
    hidden, heads, layers = part.sizes(names, (256, 8, 4))
    share, base = part.share(4.0, most=1e3), part.base(10_000.0)
    if int(hidden // heads * share) * 2 != hidden:
        raise Refused(
            f"{part.path}partial_rotary_factor must be {heads / 2:g}, half the number of heads, because rows and "
            f"columns rotate half of the hidden size each, got {share:g}",
            Reason.CONTRADICTION, f"{part.path}partial_rotary_factor", f"{part.path}num_attention_heads",
        )  # fmt: skip
    spec = RotarySpec(
        head_dim=hidden, base=base, interleaved=True, axes=Alternating((0, 1), own_ladders=True), tables="rounded"
    )
    notes = (
        "the whole hidden size is rotated like one head, before it is split",
        "positions are (row + 1, column + 1) of the aggregated features",
        "cross-attention does not rotate",
    )
    return of_one_spec(part, spec, ("attention",) * layers, 1, notes=notes)


def _side(part: TowerConfig, name: str, default: int) -> int:
    """A length in patches or pixels; pairs must be square."""
    value = part.keys.get(name)
    if value is None:
        part.default(name, str(default))
        return default
    if isinstance(value, list | tuple):
        is_list(part.path + name, value)
        value = agreed([(f"{part.path}{name}[{i}]", v) for i, v in enumerate(value)])
    is_size(part.path + name, value)
    return int(value)


PREDICTOR = CustomParser(
    "VJEPA2Config",
    "VJEPA2RopeAttention",
    vjepa2_predictor,
    weights=Weights(attention=("predictor.layer.{}.attention",), rows=(Rows("query", "q"), Rows("key", "k"))),
)
WHOLE = "it rotates the whole hidden state before heads are cut off it, so that pairs may not be moved"


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
LEARNED_CLASS = ("the class token, which comes first, rotates by trained angles (class_pos_emb), not by a position",)
OTHER_TOKENS = ("positions are (row + 1, column + 1); tokens that are no patches stand at (0, 0)",)
QUERIES = "the last num_blocks layers have num_queries more tokens in front, which are not rotated either"
NO_ROTATION = (
    "no rotation: cos and sin in the order of halves meet interleaved pairs, so the members of a pair rotate by "
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


def _vision(prefix: str, names: GridNames = PLAIN, **more: Any) -> GridTower:
    return GridTower(config=f"{prefix}VisionConfig", code=f"{prefix}VisionRotaryEmbedding", names=names, **more)


def _memory(prefix: str, layers: int, *notes: str) -> GridTower:
    """Attention over the memory of a video; its sizes stand in the config of the whole model."""
    return GridTower(
        config=f"{prefix}Config", code=f"{prefix}VisionRotaryEmbedding", hidden=256, heads=1, layers=layers,
        names=MEMORY,
        layout=plane_interleaved, downsample="memory_attention_downsample_rate",
        base_names=("rope_theta", "memory_attention_rope_theta"), notes=(*MEMORY_KEYS, *notes),
        weights=MEMORY_ATTENTION,
    )  # fmt: skip


def _centred(config: str, code: str, registers: int, *notes: str, **more: Any) -> GridTower:
    """DINOv3 and its heirs: a class token and registers, then patches at real coordinates."""
    return GridTower(
        config=config, code=code, layout=centres, base=100.0, tables="activation",
        prefix=1, registers=registers, notes=(CENTRES, *notes), **more,
    )  # fmt: skip


# fmt: off
ROWS: dict[str, Row] = {
    # positions (row, column); a block of pairs for each; halves; float32 tables
    "cohere_compass_vision": _vision("CohereCompass", SHORT, hidden=1152, heads=16, layers=27, weights=STACKED),
    "dots3_note_vision_encoder": _vision("Dots3Note", DOTS, hidden=1536, heads=24, layers=42, weights=STACKED),
    "ernie4_5_vl_moe_vision": _vision("Ernie4_5_VLMoe", SHORT, hidden=1280, heads=16, layers=32, weights=STACKED),
    "exaone4_5_vision": _vision("Exaone4_5_", SHORT, hidden=3584, heads=16, layers=32, kv_heads=8, weights=STACKED),
    "glm4v_moe_vision": _vision("Glm4vMoe", SHORT, hidden=1536, heads=12, layers=24, weights=STACKED),
    "glm4v_vision": _vision("Glm4v", SHORT, hidden=1536, heads=12, layers=24, weights=STACKED),
    "glm5_next_vision": _vision("Glm5Next", SHORT, hidden=1024, heads=16, layers=24, weights=STACKED),
    "glm_ocr_vision": _vision("GlmOcr", SHORT, hidden=1024, heads=16, layers=24, weights=STACKED),
    "lfm3_vl_vision": _vision("Lfm3Vl", hidden=1024, heads=16, layers=14, base=1_000_000.0, kv_heads=8,
        kinds=convolutions),
    "mlcd_vision_model": GridTower(config="MLCDVisionConfig", code="MLCDRotaryEmbedding", hidden=1664, heads=16,
        layers=48, notes=LEARNED_CLASS),
    "paddleocr_vl_vision": _vision("PaddleOCR", hidden=1152, heads=16, layers=27),
    "qwen2_5_omni_vision_encoder": GridTower(config="Qwen2_5OmniVisionEncoderConfig",
        code="Qwen2_5OmniVisionRotaryEmbedding", hidden=3584, heads=16, layers=32, names=SHORT,
        weights=Weights(attention=("blocks.{}.attn",), rows=(Rows("q", "q"), Rows("k", "k")))),
    "qwen2_5_vl_vision": _vision("Qwen2_5_VL", SHORT, hidden=3584, heads=16, layers=32, weights=STACKED),
    "qwen2_vl_vision": _vision("Qwen2VL", EMBED_DIM, hidden=1280, heads=16, layers=32, weights=STACKED),
    "qwen3_5_moe_vision": _vision("Qwen3_5Moe", SHORT, hidden=1152, heads=16, layers=27, weights=STACKED),
    "qwen3_5_vision": _vision("Qwen3_5", SHORT, hidden=1152, heads=16, layers=27, weights=STACKED),
    "qwen3_omni_moe_vision_encoder": GridTower(config="Qwen3OmniMoeVisionEncoderConfig",
        code="Qwen3OmniMoeVisionRotaryEmbedding", hidden=1152, heads=16, layers=27, names=SHORT, weights=STACKED),
    "qwen3_vl_moe_vision": _vision("Qwen3VLMoe", SHORT, hidden=1152, heads=16, layers=27, weights=STACKED),
    "qwen3_vl_vision": _vision("Qwen3VL", SHORT, hidden=1152, heads=16, layers=27, weights=STACKED),
    "qwen4_exp_vision": _vision("Qwen4Exp", SHORT, hidden=1152, heads=16, layers=27, weights=STACKED),
    "video_llama_3_vision": _vision("VideoLlama3", hidden=768, heads=12, layers=12),
    # the same layout, other positions or tables
    "muse_glimmer_vision": _vision("MuseGlimmer", hidden=1536, heads=16, layers=50, tables="rounded", kinds=windows,
        notes=PLUS_ONE, weights=Weights(attention=("layers.{}.attn",))),
    "muse_spark_vision": _vision("MuseSpark", hidden=1536, heads=16, layers=50, tables="rounded", kinds=windows,
        notes=PLUS_ONE, weights=Weights(attention=("layers.{}.attn",))),
    "dinov3_vit": _centred("DINOv3ViTConfig", "DINOv3ViTRopePositionEmbedding", 0, hidden=384, heads=6, layers=12,
        dicts=(), weights=Weights(attention=("layer.{}.attention",))),
    "eomt_dinov3": _centred("EomtDinov3Config", "EomtDinov3RotaryEmbedding", 4, QUERIES, hidden=1024, heads=16,
        layers=24, weights=Weights(attention=("layers.{}.attention",))),
    # other orders of the pairs
    "gemma4_vision": _vision("Gemma4", hidden=768, heads=12, layers=16, layout=plane_blocks, base=100.0,
        tables="activation", kv_heads=12, head_dim=64, notes=("positions are (column, row)",),
        weights=Weights(rows=LINEAR)),
    "kimi_k25_vision": _vision("Kimi_K25", KIMI, hidden=1152, heads=16, layers=27, layout=plane_alternating,
        weights=Weights(attention=("layers.{}.attn",)), published=Weights(attention=("blocks.{}",), rows=(Rows("wqkv",
        "qkv"),), source="read")),
    "minimax_m3_vl_vision": _vision("MiniMaxM3VL", hidden=1280, heads=16, layers=32, layout=space, tables="activation"),
    "pixtral": _vision("Pixtral", hidden=1024, heads=16, layers=24, layout=one_ladder, tables="activation",
        weights=Weights(attention=("layers.{}.attention",))),
    "step3p5_vision": _vision("Step3p7", hidden=1536, heads=16, layers=47, layout=plane_swapped,
        published=Weights(attention=("transformer.resblocks.{}.attn",), rows=(Rows("in_proj_weight.", "qkv"),
        Rows("in_proj_bias.", "qkv", always=False)), source="read")),
    # neighbouring channels
    "inkling2_vision": _vision("Inkling2", hidden=1024, heads=16, layers=23, layout=plane_swapped_interleaved,
        notes=OTHER_TOKENS),
    "llama4_vision_model": _vision("Llama4", hidden=768, heads=16, layers=34, layout=plane_interleaved, suffix=1,
        notes=(*PLUS_ONE, "the class token, which comes last, is not rotated", COMPLEX)),
    "edgetam_video": _memory("EdgeTamVideo", 2, GROUPS),
    "sam2_video": _memory("Sam2Video", 4),
    "sam3_tracker_video": _memory("Sam3TrackerVideo", 4),
    "vjepa2": GridTower(base_names=(), dicts=(), config="VJEPA2Config", code="VJEPA2RopeAttention", hidden=1024,
        heads=16, layers=24, layout=space_tiled, tables="activation", notes=NO_ROTATION,
        sub_models={"predictor": NestedModel(PREDICTOR)}, weights=Weights(attention=("encoder.layer.{}.attention",),
        rows=(Rows("query", "q"), Rows("key", "k")))),
    "efficientloftr": CustomParser("EfficientLoFTRConfig", "EfficientLoFTRRotaryEmbedding", efficientloftr,
        weights=WHOLE),
    "sam3_vit_model": CustomParser("Sam3ViTConfig", "Sam3ViTRotaryEmbedding", sam3,
        weights=Weights(attention=("layers.{}.attention",))),
    "sapiens2": CustomParser("Sapiens2Config", "Sapiens2RopePositionEmbedding", sapiens2,
        weights=Weights(attention=("layer.{}.attention",)), published=Weights(attention=("blocks.{}.attn",),
        rows=(Rows("wq", "q"), Rows("wk", "k")), source="read")),
    "vjepa2_predictor": PREDICTOR,
}
# fmt: on
