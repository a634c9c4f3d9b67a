"""Llama, and the families that rotate as it does."""

from dataclasses import replace

from ...rotary.model_rotary import ModelRotary
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
)
from ..reading.row import ALIBI, CompositeModel, PartOf, Row, always, no_rotary, with_text
from ..reading.text import TextModel
from ..reading.text_row import ANY_NAMES, Rope, TextRow
from ..weights import Gguf, Rows, Weights
from .complex_products import COMPLEX, POLAR

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
    """Llama 4: layers that rotate attend inside chunks, unless their size is null."""
    whole = bool(keys.nulls("attention_chunk_size"))
    return ["chunked_attention" if rotates and not whole else "full_attention" for rotates in listed(keys, count)]


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


def only_7b(row: TextRow, keys: Keys) -> TextRow:
    """Baichuan 13B has ALiBi, under the same model type."""
    if keys.get(*ANY_NAMES.hidden) != 4096:
        raise no_rotary("baichuan 13B", ALIBI)
    return row


# fmt: off
ROWS: dict[str, Row] = {
    **with_text("llama", "idefics3", "janus", "llava_next", "llava_next_video", "perception_lm", "smolvlm"),
    **with_text("qwen2", "llava_onevision"),
    "afmoe": TextModel("AfmoeConfig", base=10_000.0, hidden=2048, heads=16, layers=32, head_dim=128, length=16_384,
        layer_types=Layers(every(4, "global_attn_every_n_layers"), BY_NAME), rotates=full_does_not),
    "apertus": TextModel("ApertusConfig", rope=APERTUS, hidden=4096, heads=32, layers=32, length=65_536),
    "arcee": TextModel("ArceeConfig", base=10_000.0, hidden=2560, heads=32, layers=32, length=4096),
    "baichuan": TextModel("BaichuanConfig", in_transformers=False, rope=Rope(10_000.0, top=()), names=ANY_NAMES,
        dicts=(), scaled=False, before=only_7b, weights=Weights(rows=(Rows("W_pack", "qkv"),), source="read")),
    "bitnet": TextModel("BitNetConfig", base=500_000.0, hidden=2560, heads=20, kv_heads=5, layers=30, length=2048),
    "cwm": TextModel("CwmConfig", rope=CWM, hidden=6144, heads=48, kv_heads=8, layers=64, head_dim=128, length=131_072,
        layer_types=Layers(every_from_first(4), BY_NAME)),
    "hyperclovax": TextModel("HyperCLOVAXConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048),
    "hyperclovax_vision_v2": CompositeModel(parts={"vision_config": PartOf("qwen2_5_vl_vision"),
        "text_config": PartOf("hyperclovax")}),
    "internlm2": TextModel("InternLM2Config", in_transformers=False, base=10_000.0, names=ANY_NAMES,
        dicts=("rope_scaling",), weights=Weights(attention=("layers.{}.attention",), rows=(Rows("wqkv", "qkv",
        blocks="kv_heads"),), source="read")),
    "internlm3": TextModel("InternLM3Config", base=10_000.0, hidden=4096, heads=32, kv_heads=2, layers=48,
        head_dim=128, length=32_768),
    "iquestcoder": TextModel("IQuestCoderConfig", base=10_000.0, hidden=5120, heads=40, kv_heads=8, layers=80,
        head_dim=128, length=131_072),
    "jais2": TextModel("Jais2Config", base=10_000.0, hidden=3328, heads=26, layers=32, length=8192),
    LLAMA: TextModel("LlamaConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048,
        scheme_names={"mrope": "default"}, axes=sections(), gguf=Gguf("llama", interleaved=True)),
    "llama4_text": TextModel("Llama4TextConfig", base=500_000.0, hidden=5120, heads=40, kv_heads=8, layers=48,
        head_dim=128, length=131_072, layer_types=Layers(chunks, BY_NAME, kinds=("chunked_attention",)),
        rotates=by_no_rope_layers, interleaved=True, tables="float32", after=temperatures, write=into_no_rope_layers,
        notes=("q and k are L2-normalised after the rotation where use_qk_norm is set", POLAR, COMPLEX)),
    "mllama_text_model": TextModel("MllamaTextConfig", base=500_000.0, hidden=4096, heads=32, kv_heads=8, layers=40,
        length=131_072, layer_types=Layers(between_cross, kinds=("cross_attention",))),
    "nemotron-nas": TextModel("DeciLMConfig", in_transformers=False, base=10_000.0, names=ANY_NAMES,
        layer_types=Layers(by_blocks, kinds=("linear", "no_op")), weights=Weights(source="read", uneven=True)),
    "seed_oss": TextModel("SeedOssConfig", base=10_000.0, hidden=4096, heads=80, kv_heads=8, layers=64, head_dim=128,
        length=524_288),
    "smollm3": TextModel("SmolLM3Config", base=2_000_000.0, hidden=2048, heads=16, kv_heads=4, layers=36,
        length=32_768, layer_types=LISTED, rotates=by_no_rope_layers, write=into_no_rope_layers),
    "solar_open": TextModel("SolarOpenConfig", base=1_000_000.0, hidden=4096, heads=64, kv_heads=8, layers=48,
        head_dim=128, length=131_072, partial=1.0),
}
# fmt: on
# flat configs, whose text keys stand at the top beside their parts
ROWS |= {"llava": replace(ROWS["llama"], composite=True, parts={"text_config": PartOf("llama")})}
ROWS |= {
    "mllama": replace(ROWS["mllama_text_model"], composite=True, parts={"text_config": always("mllama_text_model")})
}
