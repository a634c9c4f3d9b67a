"""The GPTs and what followed them: GPT-J, GPT-NeoX, gpt-oss, Falcon, DBRX, and others."""

from dataclasses import replace
from typing import Any

from ...rotary.model_rotary import ModelRotary
from ...support.checks import number
from ..reading.keys import Keys, Reading, agreed, is_dict, is_size
from ..reading.layers import BY_NAME, WINDOWED, Layers, every
from ..reading.row import ALIBI, LEARNED, RotaryFlag, Row
from ..reading.text import TextModel
from ..reading.text_row import ANY_NAMES, Names, Rope, SpecFields, TextRow
from ..weights import Rows, Weights
from .weight_names import NEOX

YARN_32 = {
    "rope_type": "yarn", "factor": 32.0, "beta_fast": 32.0, "beta_slow": 1.0, "truncate": False,
    "original_max_position_embeddings": 4096,
}  # fmt: skip
GPT_OSS = Rope(150_000.0, YARN_32)
GPT2_NAMES = Names(
    hidden=("n_embd", "hidden_size"), heads=("n_head", "num_attention_heads"), kv_heads=(),
    layers=("n_layer", "num_hidden_layers"), head_dim=(), length=("n_positions", "max_position_embeddings"),
)  # fmt: skip


DBRX_NAMES = Names(
    hidden=("d_model", "hidden_size"), heads=("n_heads", "num_attention_heads"),
    layers=("n_layers", "num_hidden_layers"), length=("max_seq_len", "max_position_embeddings"),
)  # fmt: skip


def falcon_kv_heads(keys: Keys, heads: int) -> int:
    """One key head for all (``multi_query``, the class's default), unless the decoder is the new one."""
    path = keys.places[0][0]
    stated, key = keys.size("num_kv_heads"), f"{path}num_kv_heads"
    new, shared = keys.flag("new_decoder_architecture"), keys.flag("multi_query")
    if not new and shared is not False:
        keys.sources[key] = "no effect: multi_query, one key head for all query heads"
        if shared is None:
            keys.sources[f"{path}multi_query"] = "not in config: FalconConfig's default, true"
        return 1
    if stated is None:
        keys.sources[key] = f"not in config: one per query head, {heads}"
    return heads if stated is None else stated


def dbrx_kv_heads(keys: Keys, heads: int) -> int:
    """``attn_config.kv_n_heads``, which is all that its attention reads."""
    key = f"{keys.places[0][0]}attn_config.kv_n_heads"
    stated = _attention(keys).size("kv_n_heads")
    if stated is None:
        keys.sources[key] = "not in config: DbrxAttentionConfig's default, 1"
    kv: int = agreed([(key, 1 if stated is None else stated), *keys.entries("num_key_value_heads")], is_size)
    return kv


def base_in_attention(row: TextRow, keys: Keys) -> TextRow:
    """DBRX keeps its base in ``attn_config``; transformers' own reader loses it there."""
    inside = [
        (f"{path}.rope_theta", d.get("rope_theta")) for path, d in keys.entries(*row.dicts) if isinstance(d, dict)
    ]
    entries = [
        *_attention(keys).entries("rope_theta"),
        *keys.entries("rope_theta"),
        *(p for p in inside if p[1] is not None),
    ]
    base = agreed(entries, lambda path, value: number(path, value, above=1))
    for path, _ in entries:
        keys.sources[path] = f"base {base:.10g}"
    return row if base is None else replace(row, base=float(base))


def into_attention(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `base_in_attention` reads; the same base beside it is for transformers."""
    inner = data.get("attn_config")
    if isinstance(inner, dict) and inner.get("rope_theta") is not None:
        inner["rope_theta"] = next(spec.base for spec in model.distinct)


def _attention(keys: Keys) -> Keys:
    inner = keys.get("attn_config", check=is_dict) or {}
    return Keys([(f"{keys.places[0][0]}attn_config.", inner)], keys.sources)


def first_64(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """GPT-J and CodeGen rotate 64 channels where the config states no number."""
    if reading.keys.entries("rotary_dim"):
        return fields
    reading.default("rotary_dim", "64")
    return {**fields, "rotary_dim": 64}


def reverse(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """NanoChat rotates by the negative angle."""
    return {**fields, "reverse": True}


REACHES_NO_MODULE = "the base in attn_config, of which its checkpoint was trained, does not reach its module"
BY_CODE = Rope(10_000.0, top=())  # the base stands in the code, and no key states another

# fmt: off
ROWS: dict[str, Row] = {
    "codegen": TextModel("CodeGenConfig", rope=BY_CODE, hidden=4096, heads=16, layers=28, length=2048,
        names=GPT2_NAMES, dicts=(), shares=(), scaled=False, widths=("rotary_dim",), partial=1.0, adjust=first_64,
        interleaved=True, tables="promoted", weights=Weights(attention=("h.{}.attn",), rows=(Rows("qkv_proj", "qvk",
        blocks=4),))),
    "dbrx": TextModel("DbrxConfig", base=10_000.0, hidden=2048, heads=16, layers=24, length=2048, names=DBRX_NAMES,
        known_deviations={"frequency": REACHES_NO_MODULE},
        kv_heads=dbrx_kv_heads, before=base_in_attention, write=into_attention,
        weights=Weights(attention=("blocks.{}.norm_attn_norm.attn",), rows=(Rows("Wqkv", "qkv"),))),
    "falcon": TextModel("FalconConfig", base=10_000.0, hidden=4544, heads=71, layers=32, length=2048,
        names=Names(hidden=("hidden_size", "n_embed")), kv_heads=falcon_kv_heads, rotary_flags=(RotaryFlag("alibi",
        (False,), False, ALIBI),), weights=Weights(attention=("h.{}.self_attention",), rows=(Rows("query_key_value",
        "qkv", blocks="kv_heads"),))),
    "gpt_neo": TextModel("the GPT-J pre-release", in_transformers=False, base=10_000.0, names=ANY_NAMES,
        widths=("rotary_dim",), partial=1.0, interleaved=True, tables="float32", rotary_flags=(RotaryFlag("rotary",
        (True,), False, LEARNED),), weights=Weights(attention=("h.{}.attn.attention",), source="read")),
    "gpt_neox": TextModel("GPTNeoXConfig", rope=Rope(10_000.0, top=("rotary_emb_base",)), hidden=6144, heads=64,
        layers=44, length=2048, shares=("rotary_pct",), partial=0.25, weights=NEOX),
    "gpt_neox_japanese": TextModel("GPTNeoXJapaneseConfig", rope=Rope(10_000.0, top=("rotary_emb_base",)), hidden=2560,
        heads=32, layers=32, length=2048, shares=("rotary_pct",), partial=1.0, weights=NEOX),
    "gpt_oss": TextModel("GptOssConfig", rope=GPT_OSS, hidden=2880, heads=64, kv_heads=8, layers=36, head_dim=64,
        length=131_072, layer_types=Layers(every(2), BY_NAME)),
    "gptj": TextModel("GPTJConfig", rope=BY_CODE, hidden=4096, heads=16, layers=28, length=2048, names=GPT2_NAMES,
        dicts=(), shares=(), scaled=False, widths=("rotary_dim",), partial=1.0, adjust=first_64, interleaved=True,
        tables="promoted", weights=Weights(attention=("h.{}.attn",))),
    "nanochat": TextModel("NanoChatConfig", base=10_000.0, hidden=768, heads=6, layers=12, length=2048, adjust=reverse,
        notes=("q and k are normalised after the rotation",)),
    "openai_privacy_filter": TextModel("OpenAIPrivacyFilterConfig", rope=GPT_OSS, hidden=640, heads=14, kv_heads=2,
        layers=8, head_dim=64, length=131_072, interleaved=True),
    "persimmon": TextModel("PersimmonConfig", base=10_000.0, hidden=4096, heads=64, layers=36, length=16_384,
        partial=0.5, weights=Weights(rows=(Rows("query_key_value", "qkv", blocks="kv_heads"),),
        q_norms=("q_layernorm",), k_norms=("k_layernorm",))),
    "stablelm": TextModel("StableLmConfig", base=10_000.0, hidden=2560, heads=32, kv_heads=32, layers=32, length=4096,
        partial=0.25, weights=Weights(q_norms=("q_layernorm.norms.{}",), k_norms=("k_layernorm.norms.{}",))),
    "starcoder2": TextModel("Starcoder2Config", base=10_000.0, hidden=3072, heads=24, kv_heads=2, layers=30,
        length=4096, layer_types=WINDOWED),
}
# fmt: on
