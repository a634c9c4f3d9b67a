"""Gemma: from two kinds of layers with a base each, to global heads of another width."""

from ..reading.heads import wider_full
from ..reading.keys import Keys, is_list
from ..reading.layers import BY_NAME, Layers, every
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import Frame
from ..reading.text import Text
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
EMBEDDING_GEMMA2_TEXT = {
    "sliding_attention": Rope(10_000.0, top=()),
    "full_attention": Rope(1_000_000.0, top=()),
}


def blocks(keys: Keys, count: int) -> list[str]:
    """RecurrentGemma repeats a short list of blocks."""
    found = keys.get("block_types", check=is_list) or ["recurrent", "recurrent", "attention"]
    keys.explain("the types of the layers, repeated", "block_types")
    words = ["linear_attention" if block == "recurrent" else "sliding_attention" for block in found]
    return [words[i % len(words)] for i in range(count)]


LISTS = {"layer_types": None, "layers_block_type": None}

# fmt: off
ROWS: dict[str, Row] = {
    "diffusion_gemma": Frame(parts={"vision_config": PartOf("gemma4_vision")}),
    "embedding_gemma2": Frame(parts={"vision_config": PartOf("gemma4_vision")}),
    "shieldgemma2": Frame(parts={"text_config": PartOf("gemma3_text")}),
    "t5gemma": Frame(parts={"encoder": PartOf("t5_gemma_module"), "decoder": PartOf("t5_gemma_module")}),
    "t5gemma2": Frame(parts={"decoder": PartOf("t5gemma2_decoder")}),
    "t5gemma2_encoder": Frame(parts={"text_config": PartOf("t5gemma2_text")}),
    "diffusion_gemma_text": Text("DiffusionGemmaTextConfig", GEMMA4, (2304, 8, 4, 30, 256, 131_072),
        shares=(), dicts=("rope_parameters",), layers=Layers(every(6), BY_NAME, last="full_attention"), partial=1.0,
        heads=wider_full(512), weights=KEYS_AS_VALUES),
    "embedding_gemma2_text": Text("EmbeddingGemma2TextConfig", EMBEDDING_GEMMA2_TEXT, (512, 4, 2, 24, 256, 262_144),
        dicts=("rope_parameters",), layers=Layers(every(6, "sliding_window_pattern"), BY_NAME, last="full_attention"),
        heads=wider_full(512)),
    "gemma": Text("GemmaConfig", 10_000.0, (3072, 16, 16, 28, 256, 8192)),
    "gemma2": Text("Gemma2Config", 10_000.0, (2304, 8, 4, 26, 256, 8192), layers=Layers(every(2), BY_NAME)),
    "gemma3_text": Text("Gemma3TextConfig", GEMMA3, (2304, 8, 4, 26, 256, 131_072), fills=True,
        layers=Layers(every(6, "sliding_window_pattern"), BY_NAME)),
    "gemma3n_text": Text("Gemma3nTextConfig", GEMMA3, (2048, 8, 2, 35, 256, 32_768), fills=True,
        layers=Layers(every(5), BY_NAME), weights=Weights(may_lack=("k",))),
    "gemma4_text": Text("Gemma4TextConfig", GEMMA4, (2304, 8, 4, 30, 256, 131_072), dicts=("rope_parameters",),
        layers=Layers(every(6), BY_NAME, last="full_attention"), heads=wider_full(512), weights=KEYS_AS_VALUES),
    "gemma4_unified_text": Text("Gemma4UnifiedTextConfig", GEMMA4, (2304, 8, 4, 30, 256, 262_144),
        dicts=("rope_parameters",), layers=Layers(every(6), BY_NAME, last="full_attention"), heads=wider_full(512),
            weights=KEYS_AS_VALUES),
    "paligemma": Frame(parts={"text_config": PartOf("gemma")}),
    "pi0": Frame(parts={"dit_config": PartOf("gemma")}),
    "recurrent_gemma": Text("RecurrentGemmaConfig", 10_000.0, (2560, 10, None, 26, None, None), scaled=False,
        layers=Layers(blocks, LISTS, kinds=("linear_attention", "recurrent")),
        partial=0.5, weights=Weights(attention=("layers.{}.temporal_block",))),
    "t5_gemma_module": Text("T5GemmaModuleConfig", 10_000.0, (2304, 8, 4, 26, 256, 8192),
        layers=Layers(every(2), BY_NAME)),
    "t5gemma2_decoder": Text("T5Gemma2DecoderConfig", GEMMA3, (2304, 8, 4, 26, 256, 131_072),
        fills=True,
        layers=Layers(every(6, "sliding_window_pattern"), BY_NAME)),
    "t5gemma2_text": Text("T5Gemma2TextConfig", GEMMA3, (2304, 8, 4, 26, 256, 131_072), fills=True,
        layers=Layers(every(6, "sliding_window_pattern"), BY_NAME)),
    "vaultgemma": Text("VaultGemmaConfig", 10_000.0, (2304, 8, 4, 26, 256, 8192), layers=Layers(every(2), BY_NAME)),
}
# fmt: on
