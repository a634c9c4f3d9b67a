"""Llama, and the families that rotate as it does."""

from dataclasses import replace

from ...rotary.temperature import LogFloor
from ..reading.axes import sections
from ..reading.keys import Keys, is_list
from ..reading.layers import (
    BY_NAME,
    LISTED,
    Layers,
    by_no_rope_layers,
    every,
    every_from_first,
    full_does_not,
    into_no_rope_layers,
    listed,
)  # fmt: skip
from ..reading.model import ModelRotary
from ..reading.model_row import PartOf, Row
from ..reading.non_rotary import ALIBI, Frame, no_rotary
from ..reading.text import Text
from ..reading.text_row import ANY_NAMES, Facts, Rope
from ..weights import Gguf, Rows, Weights
from .products import COMPLEX, POLAR

LLAMA = "llama"  # for whoever writes a config of this type
APERTUS = Rope(
    12_000_000.0,
    {
        "rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
)  # fmt: skip
CWM = Rope(
    1_000_000.0,
    {
        "rope_type": "llama3", "factor": 16.0, "original_max_position_embeddings": 8192, "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
    },
)  # fmt: skip


def chunks(keys: Keys, count: int) -> list[str]:
    """Llama 4: layers that rotate attend inside chunks."""
    return ["chunked_attention" if rotates else "full_attention" for rotates in listed(keys, count)]


def temperatures(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Llama 4 scales the queries of layers that do not rotate, unless ``attn_temperature_tuning`` is off."""
    tuning = keys.get("attn_temperature_tuning")
    keys.explain("queries of layers without rotation grow" if tuning else "off", "attn_temperature_tuning")
    beta, length = keys.number("attn_scale", at_least=0), keys.whole("floor_scale")
    for name, value, default in (("attn_scale", beta, "0.1"), ("floor_scale", length, "8192")):
        if value is None:
            keys.sources[keys.places[0][0] + name] = f"not in config: Llama4TextConfig's default, {default}"
    if tuning is not None and not tuning:
        return model
    scheme = LogFloor(0.1 if beta is None else beta, 8192 if length is None else length, offset=1)
    layers = tuple(scheme if spec is None else None for spec in model.layers)
    return replace(model, temperatures=layers if any(layers) else ())


def between_cross(keys: Keys, count: int) -> list[str]:
    """Llama 3.2 Vision: some layers attend to the image, and do not rotate."""
    cross = keys.wholes("cross_attention_layers")
    cross = [3, 8, 13, 18, 23, 28, 33, 38] if cross is None else cross
    return ["cross_attention" if i in cross else "full_attention" for i in range(count)]


def by_blocks(keys: Keys, count: int) -> list[str]:
    """Nemotron-NAS: each block says whether it has attention."""
    blocks = keys.get("block_configs", check=is_list)
    if blocks is None:
        return ["attention"] * count
    words = []
    for i, block in enumerate(blocks):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise ValueError(f"block_configs[{i}] must have an object 'attention', got {block!r:.80}")
        replaced = "linear" if attention.get("replace_with_linear") else "attention"
        words.append("no_op" if attention.get("no_op") else replaced)
    return words


def only_7b(facts: Facts, keys: Keys) -> Facts:
    """Baichuan 13B has ALiBi, under the same model type."""
    if keys.get(*ANY_NAMES.hidden) != 4096:
        raise no_rotary("baichuan 13B", ALIBI)
    return facts


# fmt: off
ROWS: dict[str, Row] = {
    "afmoe": Text("AfmoeConfig", 10_000.0, (2048, 16, None, 32, 128, 16_384),
        layers=Layers(every(4, "global_attn_every_n_layers"), BY_NAME), turns=full_does_not),
    "apertus": Text("ApertusConfig", APERTUS, (4096, 32, None, 32, None, 65_536)),
    "arcee": Text("ArceeConfig", 10_000.0, (2560, 32, None, 32, None, 4096)),
    "baichuan": Text("BaichuanConfig", Rope(10_000.0, top=()), names=ANY_NAMES, dicts=(), scaled=False,
        before=only_7b, weights=Weights(rows=(Rows("W_pack",
        "qkv"),), source="read")),
    "bitnet": Text("BitNetConfig", 500_000.0, (2560, 20, 5, 30, None, 2048)),
    "cwm": Text("CwmConfig", CWM, (6144, 48, 8, 64, 128, 131_072), layers=Layers(every_from_first(4), BY_NAME)),
    "hyperclovax": Text("HyperCLOVAXConfig", 10_000.0, (4096, 32, None, 32, None, 2048)),
    "hyperclovax_vision_v2": Frame(
        parts={"vision_config": PartOf("qwen2_5_vl_vision"), "text_config": PartOf("hyperclovax")}),
    "idefics3": Frame(parts={"text_config": PartOf("llama")}),
    "internlm2": Text("InternLM2Config", 10_000.0, names=ANY_NAMES, dicts=("rope_scaling",),
        weights=Weights(attention=("layers.{}.attention",), rows=(Rows("wqkv", "qkv", blocks="kv_heads"),),
        source="read")),
    "internlm3": Text("InternLM3Config", 10_000.0, (4096, 32, 2, 48, 128, 32_768)),
    "iquestcoder": Text("IQuestCoderConfig", 10_000.0, (5120, 40, 8, 80, 128, 131_072)),
    "jais2": Text("Jais2Config", 10_000.0, (3328, 26, None, 32, None, 8192)),
    "janus": Frame(parts={"text_config": PartOf("llama")}),
    LLAMA: Text("LlamaConfig", 10_000.0, (4096, 32, None, 32, None, 2048), spelled={"mrope": "default"},
        axes=sections(), gguf=Gguf("llama", interleaved=True)),
    "llama4_text": Text("Llama4TextConfig", 500_000.0, (5120, 40, 8, 48, 128, 131_072),
        layers=Layers(chunks, BY_NAME, kinds=("chunked_attention",)), turns=by_no_rope_layers, interleaved=True,
        tables="float32", after=temperatures,
        write=into_no_rope_layers,
        notes=("q and k are L2-normalised after the rotation where use_qk_norm is set", POLAR, COMPLEX)),
    "llava_next": Frame(parts={"text_config": PartOf("llama")}),
    "llava_next_video": Frame(parts={"text_config": PartOf("llama")}),
    "llava_onevision": Frame(parts={"text_config": PartOf("qwen2")}),
    "mllama_text_model": Text("MllamaTextConfig", 500_000.0, (4096, 32, 8, 40, None, 131_072),
        layers=Layers(between_cross, kinds=("cross_attention",))),
    "nemotron-nas": Text("DeciLMConfig", 10_000.0, names=ANY_NAMES,
        layers=Layers(by_blocks, kinds=("linear", "no_op")), weights=Weights(source="read", uneven=True)),
    "perception_lm": Frame(parts={"text_config": PartOf("llama")}),
    "seed_oss": Text("SeedOssConfig", 10_000.0, (4096, 80, 8, 64, 128, 524_288)),
    "smollm3": Text("SmolLM3Config", 2_000_000.0, (2048, 16, 4, 36, None, 32_768), layers=LISTED,
        turns=by_no_rope_layers, write=into_no_rope_layers),
    "smolvlm": Frame(parts={"text_config": PartOf("llama")}),
    "solar_open": Text("SolarOpenConfig", 1_000_000.0, (4096, 64, 8, 48, 128, 131_072), partial=1.0),
}
# fmt: on
# flat configs, whose text keys stand at the top beside their parts
ROWS |= {"llava": replace(ROWS["llama"], frame=True, parts={"text_config": PartOf("llama")})}
ROWS |= {"mllama": replace(ROWS["mllama_text_model"], frame=True, parts={"text_config": PartOf("mllama_text_model")})}
