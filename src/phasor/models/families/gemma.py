"""Gemma: from two kinds of layers with a base each, to global heads of another width."""

from ..reading.keys import Keys, is_list
from ..reading.layers import BY_NAME, Layers, every, wider_full
from ..reading.row import CompositeModel, PartOf, Row, always, with_text
from ..reading.text import TextModel
from ..reading.text_row import Rope
from ..weights import Weights
from .weight_names import KEYS_AS_VALUES

GEMMA3 = {
    "sliding_attention": Rope(10_000.0, top=("rope_local_base_freq",)),
    "full_attention": Rope(1_000_000.0, flat=("rope_scaling",)),
}
GEMMA4 = {
    "sliding_attention": Rope(10_000.0, top=()),
    "full_attention": Rope(1_000_000.0, {"rope_type": "proportional", "partial_rotary_factor": 0.25}, top=()),
}
EMBEDDING_GEMMA2_TEXT = {"sliding_attention": Rope(10_000.0, top=()), "full_attention": Rope(1_000_000.0, top=())}


def blocks(keys: Keys, count: int) -> list[str]:
    """RecurrentGemma repeats a short list of blocks."""
    entries = keys.get("block_types", check=is_list) or ["recurrent", "recurrent", "attention"]
    keys.explain("the types of the layers, repeated", "block_types")
    words = ["linear_attention" if block == "recurrent" else "sliding_attention" for block in entries]
    return [words[i % len(words)] for i in range(count)]


LISTS = {"layer_types": None, "layers_block_type": None}

# fmt: off
ROWS: dict[str, Row] = {
    **with_text("gemma3_text", "shieldgemma2"),
    **with_text("gemma", "paligemma"),
    "diffusion_gemma": CompositeModel(parts={"vision_config": PartOf("gemma4_vision")}),
    "embedding_gemma2": CompositeModel(parts={"vision_config": PartOf("gemma4_vision")}),
    "t5gemma": CompositeModel(parts={"encoder": always("t5_gemma_module"), "decoder": always("t5_gemma_module")}),
    "t5gemma2_encoder": CompositeModel(parts={"text_config": always("t5gemma2_text")}),
    "t5gemma2": CompositeModel(parts={"decoder": always("t5gemma2_decoder")}),
    "diffusion_gemma_text": TextModel("DiffusionGemmaTextConfig", rope=GEMMA4, hidden=2304, heads=8, kv_heads=4,
        layers=30, head_dim=256, length=131_072, shares=(), dicts=("rope_parameters",), layer_types=Layers(every(6),
        BY_NAME, last="full_attention"), partial=1.0, head_widths=wider_full(512), weights=KEYS_AS_VALUES),
    "embedding_gemma2_text": TextModel("EmbeddingGemma2TextConfig", rope=EMBEDDING_GEMMA2_TEXT, hidden=512, heads=4,
        kv_heads=2, layers=24, head_dim=256, length=262_144, dicts=("rope_parameters",), layer_types=Layers(every(6,
        "sliding_window_pattern"), BY_NAME, last="full_attention"), head_widths=wider_full(512)),
    "gemma": TextModel("GemmaConfig", base=10_000.0, hidden=3072, heads=16, kv_heads=16, layers=28, head_dim=256,
        length=8192),
    "gemma2": TextModel("Gemma2Config", base=10_000.0, hidden=2304, heads=8, kv_heads=4, layers=26, head_dim=256,
        length=8192, layer_types=Layers(every(2), BY_NAME)),
    "gemma3_text": TextModel("Gemma3TextConfig", rope=GEMMA3, hidden=2304, heads=8, kv_heads=4, layers=26,
        head_dim=256, length=131_072, fills_defaults=True, layer_types=Layers(every(6, "sliding_window_pattern"),
        BY_NAME)),
    "gemma3n_text": TextModel("Gemma3nTextConfig", rope=GEMMA3, hidden=2048, heads=8, kv_heads=2, layers=35,
        head_dim=256, length=32_768, fills_defaults=True, layer_types=Layers(every(5), BY_NAME),
        weights=Weights(may_lack=("k",))),
    "gemma4_text": TextModel("Gemma4TextConfig", rope=GEMMA4, hidden=2304, heads=8, kv_heads=4, layers=30,
        head_dim=256, length=131_072, dicts=("rope_parameters",), layer_types=Layers(every(6), BY_NAME,
        last="full_attention"), head_widths=wider_full(512), weights=KEYS_AS_VALUES),
    "gemma4_unified_text": TextModel("Gemma4UnifiedTextConfig", rope=GEMMA4, hidden=2304, heads=8, kv_heads=4,
        layers=30, head_dim=256, length=262_144, dicts=("rope_parameters",), layer_types=Layers(every(6), BY_NAME,
        last="full_attention"), head_widths=wider_full(512), weights=KEYS_AS_VALUES),
    "pi0": CompositeModel(parts={"dit_config": PartOf("gemma")}),
    "recurrent_gemma": TextModel("RecurrentGemmaConfig", base=10_000.0, hidden=2560, heads=10, layers=26, scaled=False,
        layer_types=Layers(blocks, LISTS, kinds=("linear_attention", "recurrent")), partial=0.5,
        weights=Weights(attention=("layers.{}.temporal_block",))),
    "t5_gemma_module": TextModel("T5GemmaModuleConfig", base=10_000.0, hidden=2304, heads=8, kv_heads=4, layers=26,
        head_dim=256, length=8192, layer_types=Layers(every(2), BY_NAME)),
    "t5gemma2_decoder": TextModel("T5Gemma2DecoderConfig", rope=GEMMA3, hidden=2304, heads=8, kv_heads=4, layers=26,
        head_dim=256, length=131_072, fills_defaults=True, layer_types=Layers(every(6, "sliding_window_pattern"),
        BY_NAME)),
    "t5gemma2_text": TextModel("T5Gemma2TextConfig", rope=GEMMA3, hidden=2304, heads=8, kv_heads=4, layers=26,
        head_dim=256, length=131_072, fills_defaults=True, layer_types=Layers(every(6, "sliding_window_pattern"),
        BY_NAME)),
    "vaultgemma": TextModel("VaultGemmaConfig", base=10_000.0, hidden=2304, heads=8, kv_heads=4, layers=26,
        head_dim=256, length=8192, layer_types=Layers(every(2), BY_NAME)),
}
# fmt: on
