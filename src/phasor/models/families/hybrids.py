"""Attention beside state spaces."""

from dataclasses import replace

from ..reading.keys import Keys, agreed
from ..reading.layers import BY_NAME, Layers, alike, listed_as, must_say
from ..reading.row import NOPE, RotaryFlag, Row
from ..reading.text import TextModel
from ..reading.text_row import Names, Rope, TextRow
from ..weights import Rows, Weights

ZAYA = {
    "hybrid": Rope(5_000_000.0, {"partial_rotary_factor": 0.5}, top=()),
    "hybrid_sliding": Rope(10_000.0, {"partial_rotary_factor": 0.5}, top=()),
}


def heads_of_experts(row: TextRow, keys: Keys) -> TextRow:
    """JetMoE has as many query heads per key head as experts per token."""
    default = row.kv_heads
    assert isinstance(default, int)
    kv_heads = keys.size("num_key_value_heads") or default
    heads = kv_heads * (keys.whole("num_experts_per_tok") or 2)
    agreed([("num_key_value_heads * num_experts_per_tok", heads), *keys.entries("num_attention_heads")])
    return replace(row, heads=heads)


def of_both_streams(hidden: int, heads: int) -> float:
    """The attention of Zamba 2 works on two hidden states side by side."""
    return 2 * hidden / heads


def zamba2(keys: Keys, count: int) -> list[str]:
    """Zamba 2's class lists the kinds of 54 layers, whatever their number."""
    hybrid = {*range(6, 48, 6), 47, 51}
    if count != 54:
        must_say(keys, count)
    return ["hybrid" if i in hybrid else "linear_attention" for i in range(count)]


# fmt: off
ROWS: dict[str, Row] = {
    "bamba": TextModel("BambaConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=8, layers=32, length=262_144,
        reads={"attn_layer_indices": "the layers with attention"}, layer_types=Layers(listed_as("attn_layer_indices",
        "mamba", default=False), {"layer_types": None, "layers_block_type": None}, kinds=("mamba",)), partial=0.5),
    "falcon_h1": TextModel("FalconH1Config", base=10_000.0, hidden=4096, heads=32, kv_heads=8, layers=32, length=8192,
        layer_types=Layers(alike("hybrid"), {"layer_types": None, "layers_block_type": None}, kinds=("hybrid",
        "mamba"))),
    "helium": TextModel("HeliumConfig", base=100_000.0, hidden=2560, heads=20, kv_heads=20, layers=24, head_dim=128,
        length=4096, interleaved=True),
    "jetmoe": TextModel("JetMoeConfig", base=10_000.0, hidden=2048, kv_heads=16, layers=12, head_dim=128, length=4096,
        before=heads_of_experts, names=Names(head_dim=("kv_channels", "head_dim")),
        weights=Weights(attention=("layers.{}.self_attention",), rows=(Rows("experts.input_linear", "q", axis=1),
        Rows("kv_proj", "kv")))),
    "nemotron": TextModel("NemotronConfig", base=10_000.0, hidden=6144, heads=48, layers=32, length=4096, partial=0.5),
    "zamba2": TextModel("Zamba2Config", base=10_000.0, hidden=2560, heads=32, layers=54, length=4096,
        names=Names(head_dim=("attention_head_dim",)),
        reads={"kv_channels": "no effect: attention_head_dim says the channels"}, layer_types=Layers(zamba2,
        {"layer_types": None, "layers_block_type": None}, kinds=("hybrid", "mamba", "linear_attention")),
        head_dim=of_both_streams, rotary_flags=(RotaryFlag("use_mem_rope", (True,), False, NOPE),),
        weights=Weights(attention=("layers.{}.shared_transformer.self_attn",), may_lack=("q", "k"))),
    "zaya": TextModel("ZayaConfig", rope=ZAYA, hidden=2048, heads=8, kv_heads=2, layers=40, head_dim=128,
        length=131_072, dicts=("rope_parameters",), layer_types=Layers(alike("hybrid"), BY_NAME, kinds=("hybrid",
        "hybrid_sliding")), partial=1.0, weights=Weights(rows=(Rows("qkv_proj.q_proj", "q"), Rows("qkv_proj.k_proj",
        "k"), Rows("qkv_proj.conv_qk_depthwise", "qk"), Rows("qkv_proj.conv_qk_grouped", "qk"),
        Rows("qkv_proj.conv_qk_grouped.weight.", "h", axis=1)))),
}
# fmt: on
