"""The GPTs and what followed them: GPT-J, GPT-NeoX, gpt-oss, Falcon, DBRX, and others."""

from dataclasses import replace
from typing import Any

from ...support.checks import number
from ..reading.keys import Keys, agreed, is_dict, is_size
from ..reading.layers import BY_NAME, WINDOWED, Layers, every
from ..reading.model import ModelRotary
from ..reading.model_row import Row
from ..reading.non_rotary import ALIBI, LEARNED, Switch
from ..reading.text import Text
from ..reading.text_row import ANY_NAMES, Facts, Names, Rope
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
    kv: int = agreed([(key, 1 if stated is None else stated), *keys.found("num_key_value_heads")], is_size)
    return kv


def base_in_attention(facts: Facts, keys: Keys) -> Facts:
    """DBRX keeps its base in ``attn_config``; transformers' own reader loses it there."""
    inside = [
        (f"{path}.rope_theta", d.get("rope_theta")) for path, d in keys.found(*facts.dicts) if isinstance(d, dict)
    ]
    found = [*_attention(keys).found("rope_theta"), *keys.found("rope_theta"), *(p for p in inside if p[1] is not None)]
    base = agreed(found, lambda path, value: number(path, value, above=1))
    for path, _ in found:
        keys.sources[path] = f"base {base:.10g}"
    return facts if base is None else replace(facts, rope=float(base))


def into_attention(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `base_in_attention` reads; the same base beside it is for transformers."""
    inner = data.get("attn_config")
    if isinstance(inner, dict) and inner.get("rope_theta") is not None:
        inner["rope_theta"] = next(spec.base for spec in model.distinct)


def _attention(keys: Keys) -> Keys:
    inner = keys.get("attn_config", check=is_dict) or {}
    return Keys([(f"{keys.places[0][0]}attn_config.", inner)], keys.sources)


BY_CODE = Rope(10_000.0, top=())  # the base stands in the code, and no key states another

# fmt: off
ROWS: dict[str, Row] = {
    "codegen": Text("CodeGenConfig", BY_CODE, (4096, 16, None, 28, None, 2048), names=GPT2_NAMES, dicts=(), shares=(),
        scaled=False,
        widths=("rotary_dim",), width=64, partial=1.0, interleaved=True, tables="promoted",
            weights=Weights(attention=("h.{}.attn",), rows=(Rows("qkv_proj", "qvk", blocks=4),))),
    "dbrx": Text("DbrxConfig", 10_000.0, (2048, 16, 1, 24, None, 2048),
        names=DBRX_NAMES,
        argued={"frequency": "the base in attn_config, of which its checkpoint was trained, does not reach its module"},
        kv_heads=dbrx_kv_heads, before=base_in_attention, write=into_attention,
            weights=Weights(attention=("blocks.{}.norm_attn_norm.attn",), rows=(Rows("Wqkv", "qkv"),))),
    "falcon": Text("FalconConfig", 10_000.0, (4544, 71, None, 32, None, 2048),
        names=Names(hidden=("hidden_size", "n_embed")), kv_heads=falcon_kv_heads,
        switches=(Switch("alibi", (False,), False, ALIBI),), weights=Weights(attention=("h.{}.self_attention",),
            rows=(Rows("query_key_value", "qkv", blocks="kv_heads"),))),
    "gpt_neo": Text("the GPT-J pre-release", 10_000.0, names=ANY_NAMES, widths=("rotary_dim",), partial=1.0,
        interleaved=True, tables="float32", switches=(Switch("rotary", (True,), False, LEARNED),),
            weights=Weights(attention=("h.{}.attn.attention",), source="read")),
    "gpt_neox": Text("GPTNeoXConfig", Rope(10_000.0, top=("rotary_emb_base",)), (6144, 64, None, 44, None, 2048),
        shares=("rotary_pct",), partial=0.25, weights=NEOX),
    "gpt_neox_japanese": Text("GPTNeoXJapaneseConfig", Rope(10_000.0, top=("rotary_emb_base",)),
        (2560, 32, None, 32, None, 2048), shares=("rotary_pct",), partial=1.0, weights=NEOX),
    "gpt_oss": Text("GptOssConfig", GPT_OSS, (2880, 64, 8, 36, 64, 131_072), layers=Layers(every(2), BY_NAME)),
    "gptj": Text("GPTJConfig", BY_CODE, (4096, 16, None, 28, None, 2048), names=GPT2_NAMES, dicts=(), shares=(),
        scaled=False,
        widths=("rotary_dim",),
        width=64, partial=1.0, interleaved=True, tables="promoted", weights=Weights(attention=("h.{}.attn",))),
    "nanochat": Text("NanoChatConfig", 10_000.0, (768, 6, None, 12, None, 2048), reverse=True,
        notes=("q and k are normalised after the rotation",)),
    "openai_privacy_filter": Text("OpenAIPrivacyFilterConfig", GPT_OSS, (640, 14, 2, 8, 64, 131_072),
        interleaved=True),
    "persimmon": Text("PersimmonConfig", 10_000.0, (4096, 64, None, 36, None, 16_384), partial=0.5,
        weights=Weights(rows=(Rows("query_key_value", "qkv", blocks="kv_heads"),), q_norms=("q_layernorm",),
        k_norms=("k_layernorm",))),
    "stablelm": Text("StableLmConfig", 10_000.0, (2560, 32, 32, 32, None, 4096), partial=0.25,
        weights=Weights(q_norms=("q_layernorm.norms.{}",), k_norms=("k_layernorm.norms.{}",))),
    "starcoder2": Text("Starcoder2Config", 10_000.0, (3072, 24, 2, 30, None, 4096), layers=WINDOWED),
}
# fmt: on
