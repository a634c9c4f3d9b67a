"""Families of a row or a few each: BLT, ERNIE, EXAONE, Granite, Phi, and those with nothing in common."""

from dataclasses import replace

from ...positions import Rule
from ...rotary.model_rotary import ModelRotary
from ..reading.axes import paired, sections
from ..reading.keys import Keys
from ..reading.layers import (
    BY_NAME,
    WINDOWED,
    Layers,
    alike,
    every,
    every_from_first,
    full_does_not,
    full_does_not_with_windows,
)
from ..reading.row import NOPE, CompositeModel, PartOf, RotaryFlag, Row, always, with_text
from ..reading.text import TextModel
from ..reading.text_row import ANY_NAMES
from ..weights import Rows, Weights
from .weight_names import LAYERNORM


def every_cycle(model: ModelRotary, keys: Keys) -> ModelRotary:
    """HRM runs its layers once per cycle; a config without ``num_layers_per_stack`` counts those of one stack."""
    high, low = keys.whole("H_cycles") or 2, keys.whole("L_cycles") or 3
    runs = high * (low + 1) if keys.get("num_layers_per_stack") is None else 1
    return replace(model, layers=model.layers * runs, layer_types=model.layer_types * runs)


def flint(keys: Keys, count: int) -> list[str]:
    """Flint: every fourth layer, the first two and the last attend to everything."""
    full = {0, 1, count - 1, *range(1, count, 4)}
    return ["full_attention" if i in full else "sliding_attention" for i in range(count)]


# fmt: off
ROWS: dict[str, Row] = {
    "emu3": CompositeModel(parts={"text_config": always("emu3_text_model")}),
    **with_text("exaone4", "exaone4_5"),
    **with_text("qwen2", "fast_vlm", "got_ocr2", "internvl", "ovis2", "pp_chart2table"),
    **with_text("qwen3", "fun_asr_nano", "qianfan_ocr"),
    **with_text("persimmon", "fuyu"),
    **with_text("llama", "video_llava", "vipllava"),
    **with_text("granite", "granite_speech", "granite_speech_plus"),
    "aria_text": TextModel("AriaTextConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048),
    "blt": CompositeModel(ignores_rope_keys=True, parts={"patcher_config": always("blt_patcher"),
        "encoder_config": always("blt_local_encoder"), "decoder_config": always("blt_local_decoder"),
        "global_config": always("blt_global_transformer")}),
    "chameleon": TextModel("ChameleonConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=32, layers=32,
        length=4096),
    "chmv2": CompositeModel(parts={"backbone_config": PartOf("dinov3_vit")}),
    "dia": CompositeModel(parts={"encoder_config": always("dia_encoder"),
        "decoder_config": always("dia_decoder")}),
    "diffllama": TextModel("DiffLlamaConfig", base=10_000.0, hidden=2048, heads=32, layers=16, length=2048),
    "doge": TextModel("DogeConfig", base=10_000.0, hidden=1024, heads=8, layers=32, length=2048),
    "emu3_text_model": TextModel("Emu3TextConfig", base=1_000_000.0, hidden=4096, heads=32, kv_heads=8, layers=32,
        length=9216),
    "hrm_text": TextModel("HrmTextConfig", base=10_000.0, hidden=1536, heads=12, layers=16, head_dim=128, length=2048,
        after=every_cycle, weights=Weights(attention=("L_module.layers.{}.self_attn", "H_module.layers.{}.self_attn"),
        stacks="loop"), published=Weights(attention=("L_module.layers.{}.attn", "H_module.layers.{}.attn"),
        rows=(Rows("gqkv_proj", "gqkv"),), stacks="loop", source="read")),
    "idefics": TextModel("IdeficsConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048,
        weights=Weights(q_norms=("q_layer_norm",), k_norms=("k_layer_norm",))),
    "lasr_ctc": CompositeModel(parts={"encoder_config": always("lasr_encoder")}),
    "sam3_video": CompositeModel(parts={"tracker_config": PartOf("sam3_tracker_video")}),
    "sam3_vision_model": CompositeModel(parts={"backbone_config": PartOf("sam3_vit_model")}),
    "timesfm2_5": TextModel("TimesFm2_5Config", base=10_000.0, hidden=1280, heads=16, kv_heads=16, layers=20,
        head_dim=80, length=16_384, notes=("q and k are normalised after the rotation",
        "positions of padding may be negative"), weights=Weights(q_norms=("q_norm", "scaling."))),
    "blt_global_transformer": TextModel("BltGlobalTransformerConfig", base=500_000.0, hidden=2048, heads=16, layers=25,
        length=4096, interleaved=True),
    "blt_local_decoder": TextModel("BltLocalDecoderConfig", base=500_000.0, hidden=1024, heads=16, layers=9,
        length=24_576, interleaved=True),
    "blt_local_encoder": TextModel("BltLocalEncoderConfig", base=500_000.0, hidden=1024, heads=16, layers=1,
        length=24_576, interleaved=True),
    "blt_patcher": TextModel("BltPatcherConfig", base=10_000.0, hidden=768, heads=12, layers=14, length=8192,
        interleaved=True),
    "ernie4_5": TextModel("Ernie4_5Config", base=500_000.0, hidden=1024, heads=16, kv_heads=2, layers=18, head_dim=128,
        length=131_072, interleaved=True, tables="float32"),
    "ernie4_5_moe": TextModel("Ernie4_5_MoeConfig", base=500_000.0, hidden=2560, heads=20, kv_heads=4, layers=28,
        length=131_072, interleaved=True, tables="float32"),
    "ernie4_5_vl_moe": CompositeModel(positions=Rule(frame_merge=2)),
    "ernie4_5_vl_moe_text": TextModel("Ernie4_5_VLMoeTextConfig", base=500_000.0, hidden=2560, heads=20, kv_heads=4,
        layers=28, length=131_072, scaled=False, interleaved=True, tables="float32", axes=paired(22, 22, 20)),
    "paddleocr_vl": CompositeModel(positions=Rule()),
    "paddleocr_vl_text": TextModel("PaddleOCRTextConfig", base=500_000.0, hidden=1024, heads=16, kv_heads=2, layers=18,
        head_dim=128, length=131_072, scheme_names={"mrope": "default"},
        reads={"use_3d_rope": "M-RoPE, as the code does always"}, axes=sections(16, 24, 24)),
    "exaone4": TextModel("Exaone4Config", base=10_000.0, hidden=4096, heads=32, kv_heads=32, layers=32, length=2048,
        layer_types=Layers(every(4, "sliding_window_pattern"), BY_NAME), rotates=full_does_not_with_windows),
    "exaone_moe": TextModel("ExaoneMoeConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=32, layers=32,
        length=2048, layer_types=Layers(every(4, "sliding_window_pattern"), BY_NAME),
        rotates=full_does_not_with_windows),
    "flint": TextModel("FlintConfig", base=10_000.0, hidden=2048, heads=32, kv_heads=4, layers=49, head_dim=128,
        length=262_144, layer_types=Layers(flint, BY_NAME), rotates=full_does_not),
    "kolibri1": TextModel("Kolibri1Config", base=10_000.0, hidden=2560, heads=48, kv_heads=4, layers=50, head_dim=128,
        length=262_144, layer_types=Layers(every(5), BY_NAME), rotates=full_does_not_with_windows),
    "granite": TextModel("GraniteConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048),
    "granite4_vision_text": TextModel("Granite4VisionTextConfig", base=10_000.0, hidden=4096, heads=32, layers=32,
        length=2048),
    "granite_docling_text": TextModel("GraniteDoclingTextConfig", base=10_000.0, hidden=1024, heads=16, kv_heads=4,
        layers=28, length=32_768),
    "granite_swa": TextModel("GraniteSWAConfig", base=10_000.0, hidden=2560, heads=20, kv_heads=4, layers=24,
        length=8192, bases="layer_rope_theta", layer_types=Layers(every_from_first(4), BY_NAME)),
    "granitemoe": TextModel("GraniteMoeConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048),
    "granitemoe_swa": TextModel("GraniteMoeSWAConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048,
        bases="layer_rope_theta", layer_types=Layers(every_from_first(4), BY_NAME)),
    "granitemoehybrid": TextModel("GraniteMoeHybridConfig", base=10_000.0, hidden=4096, heads=32, layers=32,
        length=2048, layer_types=Layers(alike("linear_attention"), {"layer_types": None,
        "layers_block_type": None}, kinds=("mamba",
        "mamba2", "linear_attention")), rotary_flags=(RotaryFlag("position_embedding_type", ("rope",), None, NOPE),)),
    "granitemoeshared": TextModel("GraniteMoeSharedConfig", base=10_000.0, hidden=4096, heads=32, layers=32,
        length=2048),
    "mixformer-sequential": TextModel("MixFormerSequentialConfig", in_transformers=False, base=10_000.0,
        names=ANY_NAMES, widths=("rotary_dim",), reads={"flash_rotary": "no effect: which kernel rotates"},
        partial=1.0, tables="rounded", weights=Weights(attention=("layers.{}.mixer",), rows=(Rows("Wqkv", "qkv"),),
        stacks="loop", source="read")),
    "phi": TextModel("PhiConfig", base=10_000.0, hidden=2048, heads=32, layers=24, length=2048, partial=0.5,
        weights=LAYERNORM),
    "phi3": TextModel("Phi3Config", base=10_000.0, hidden=3072, heads=32, layers=32, length=4096, layer_types=WINDOWED,
        scheme_names={"su": "longrope", "yarn": "longrope"}, partial=1.0, weights=Weights(rows=(Rows("qkv_proj",
        "qkv"),))),
    "phi4_multimodal": TextModel("Phi4MultimodalConfig", base=10_000.0, hidden=3072, heads=32, kv_heads=8, layers=32,
        length=131_072, layer_types=WINDOWED, scheme_names={"su": "longrope", "yarn": "longrope"}, partial=1.0,
        weights=Weights(rows=(Rows("qkv_proj", "qkv"),))),
    "phimoe": TextModel("PhimoeConfig", base=1_000_000.0, hidden=4096, heads=32, kv_heads=8, layers=32, length=131_072,
        layer_types=WINDOWED, scheme_names={"su": "longrope"},
        notes=("transformers never uses long_factor; the model's own code does, and so does this spec",)),
}
# fmt: on
# another name of the same code
ROWS |= {"phi4mm": replace(ROWS["phi4_multimodal"], in_transformers=False)}
