"""MiniMax."""

from dataclasses import replace

from ..reading.indexer import Indexer
from ..reading.keys import Keys, is_dict
from ..reading.layers import BY_NAME, Layers
from ..reading.row import Row
from ..reading.text import TextModel
from ..weights import Weights


def sparse(keys: Keys, count: int) -> list[str]:
    """MiniMax M3's published form: a list of the layers with sparse attention (1) in a dictionary of its own."""
    inner = keys.get("sparse_attention_config", check=is_dict) or {}
    path = f"{keys.places[0][0]}sparse_attention_config."
    flags = Keys([(path, inner)], keys.sources).wholes("sparse_attention_freq")
    if flags is None:
        return ["full_attention"] * count
    return ["minimax_m3_sparse" if flag else "full_attention" for flag in flags]


M3 = TextModel("MiniMaxM3VLTextConfig", base=5_000_000.0, hidden=6144, heads=64, kv_heads=4, layers=60, head_dim=128,
    length=524_288, widths=("rotary_dim",), layer_types=Layers(sparse, BY_NAME, kinds=("minimax_m3_sparse",)),
    partial=0.5, notes=("transformers reads partial_rotary_factor only: without it, it rotates all channels",),
    known_deviations={
        "frequencies, theirs": "its module drops rotary_dim; checkpoints state both keys, and they agree"},
    sub_models={"indexer": Indexer(128, 4, word="minimax_m3_sparse", nested="sparse_attention_config",
    inside=("sparse_index_dim", "sparse_num_index_heads"),
    weights=Weights(attention=("layers.{}.self_attn.indexer",)))})  # fmt: skip


def even_full(keys: Keys, count: int) -> list[str]:
    """MiniMax: full attention in layers 0, 2, 4, …"""
    return ["linear_attention" if i % 2 else "full_attention" for i in range(count)]


# fmt: off
ROWS: dict[str, Row] = {
    "minimax": TextModel("MiniMaxConfig", base=1_000_000.0, hidden=4096, heads=32, kv_heads=8, layers=32,
        length=131_072, layer_types=Layers(even_full, {**BY_NAME, "attn_type_list": {0: "linear_attention",
        1: "full_attention"}}, kinds=("linear_attention",))),
    "minimax_m2": TextModel("MiniMaxM2Config", base=5_000_000.0, hidden=3072, heads=48, kv_heads=8, layers=62,
        head_dim=128, length=196_608, widths=("rotary_dim",),
        layer_types=Layers(listed={"attn_type_list": {1: "full_attention"}}), partial=1.0),
    "minimax_m3": replace(M3, composite=True),
    "minimax_m3_vl_text": M3,
}
# fmt: on
