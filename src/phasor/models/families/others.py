"""Families with nothing in common but a row each."""

from dataclasses import replace

from ..reading.keys import Keys
from ..reading.model import ModelRotary
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import Frame
from ..reading.text import Text
from ..weights import Rows, Weights


def every_cycle(model: ModelRotary, keys: Keys) -> ModelRotary:
    """HRM runs its layers once per cycle; a config without ``num_layers_per_stack`` counts those of one stack."""
    high, low = keys.whole("H_cycles") or 2, keys.whole("L_cycles") or 3
    runs = high * (low + 1) if keys.get("num_layers_per_stack") is None else 1
    return replace(model, layers=model.layers * runs, layer_types=model.layer_types * runs)


# fmt: off
ROWS: dict[str, Row] = {
    "aria_text": Text("AriaTextConfig", 10_000.0, (4096, 32, None, 32, None, 2048)),
    "blt": Frame(deaf=True,
        parts={"patcher_config": PartOf("blt_patcher"), "encoder_config": PartOf("blt_local_encoder"),
            "decoder_config": PartOf("blt_local_decoder"), "global_config": PartOf("blt_global_transformer")}),
    "chameleon": Text("ChameleonConfig", 10_000.0, (4096, 32, 32, 32, None, 4096)),
    "chmv2": Frame(parts={"backbone_config": PartOf("dinov3_vit")}),
    "dia": Frame(parts={"decoder_config": PartOf("dia_decoder")}),
    "diffllama": Text("DiffLlamaConfig", 10_000.0, (2048, 32, None, 16, None, 2048)),
    "doge": Text("DogeConfig", 10_000.0, (1024, 8, None, 32, None, 2048)),
    "emu3": Frame(parts={"text_config": PartOf("emu3_text_model")}),
    "emu3_text_model": Text("Emu3TextConfig", 1_000_000.0, (4096, 32, 8, 32, None, 9216)),
    "exaone4_5": Frame(parts={"text_config": PartOf("exaone4")}),
    "fast_vlm": Frame(parts={"text_config": PartOf("qwen2")}),
    "fun_asr_nano": Frame(parts={"text_config": PartOf("qwen3")}),
    "fuyu": Frame(parts={"text_config": PartOf("persimmon")}),
    "got_ocr2": Frame(parts={"text_config": PartOf("qwen2")}),
    "hrm_text": Text("HrmTextConfig", 10_000.0, (1536, 12, None, 16, 128, 2048), after=every_cycle,
        weights=Weights(attention=("L_module.layers.{}.self_attn", "H_module.layers.{}.self_attn"), stacks="loop"),
        published=Weights(attention=("L_module.layers.{}.attn", "H_module.layers.{}.attn"), rows=(Rows("gqkv_proj",
        "gqkv"),), stacks="loop", source="read")),
    "idefics": Text("IdeficsConfig", 10_000.0, (4096, 32, None, 32, None, 2048),
        weights=Weights(q_norms=("q_layer_norm",), k_norms=("k_layer_norm",))),
    "internvl": Frame(parts={"text_config": PartOf("qwen2")}),
    "lasr_ctc": Frame(parts={"encoder_config": PartOf("lasr_encoder")}),
    "ovis2": Frame(parts={"text_config": PartOf("qwen2")}),
    "pp_chart2table": Frame(parts={"text_config": PartOf("qwen2")}),
    "qianfan_ocr": Frame(parts={"text_config": PartOf("qwen3")}),
    "sam3_video": Frame(parts={"tracker_config": PartOf("sam3_tracker_video")}),
    "sam3_vision_model": Frame(parts={"backbone_config": PartOf("sam3_vit_model")}),
    "timesfm2_5": Text("TimesFm2_5Config", 10_000.0, (1280, 16, 16, 20, 80, 16_384),
        notes=("q and k are normalised after the rotation", "positions of padding may be negative"),
            weights=Weights(q_norms=("q_norm", "scaling."))),
    "video_llava": Frame(parts={"text_config": PartOf("llama")}),
    "vipllava": Frame(parts={"text_config": PartOf("llama")}),
}
# fmt: on
