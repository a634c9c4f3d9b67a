"""Attention beside state spaces."""

from dataclasses import replace

from ..reading.keys import Keys, agreed
from ..reading.layers import BY_NAME, Layers, alike, listed_as, must_say
from ..reading.model_row import Row
from ..reading.non_rotary import NOPE, Switch
from ..reading.text import Text
from ..reading.text_row import Facts, Names, Rope
from ..weights import Rows, Weights

ZAYA = {
    "hybrid": Rope(5_000_000.0, {"partial_rotary_factor": 0.5}, top=()),
    "hybrid_sliding": Rope(10_000.0, {"partial_rotary_factor": 0.5}, top=()),
}


def heads_of_experts(facts: Facts, keys: Keys) -> Facts:
    """JetMoE has as many query heads per key head as experts per token."""
    kv_heads = keys.size("num_key_value_heads") or facts.sizes[2] or 0
    heads = kv_heads * (keys.whole("num_experts_per_tok") or 2)
    agreed([("num_key_value_heads * num_experts_per_tok", heads), *keys.found("num_attention_heads")])
    return replace(facts, sizes=(facts.sizes[0], heads, *facts.sizes[2:]))


# fmt: off
ROWS: dict[str, Row] = {
    "bamba": Text("BambaConfig", 10_000.0, (4096, 32, 8, 32, None, 262_144),
        reads={"attn_layer_indices": "the layers with attention"},
        layers=Layers(listed_as("attn_layer_indices", "mamba", default=False), {"layer_types": None,
            "layers_block_type": None}, kinds=("mamba",)),
        partial=0.5),
    "falcon_h1": Text("FalconH1Config", 10_000.0, (4096, 32, 8, 32, None, 8192),
        layers=Layers(alike("hybrid"), {"layer_types": None, "layers_block_type": None}, kinds=("hybrid", "mamba"))),
    "helium": Text("HeliumConfig", 100_000.0, (2560, 20, 20, 24, 128, 4096), interleaved=True),
    "jetmoe": Text("JetMoeConfig", 10_000.0, (2048, None, 16, 12, 128, 4096), before=heads_of_experts,
        names=Names(head_dim=("kv_channels", "head_dim")), weights=Weights(attention=("layers.{}.self_attention",),
            rows=(Rows("experts.input_linear", "q", axis=1), Rows("kv_proj", "kv")))),
    "nemotron": Text("NemotronConfig", 10_000.0, (6144, 48, None, 32, None, 4096), partial=0.5),
    "zamba2": Text("Zamba2Config", 10_000.0, (2560, 32, None, 54, None, 4096),
        names=Names(head_dim=("attention_head_dim",)),
        reads={"kv_channels": "no effect: attention_head_dim says the channels"},
        layers=Layers(must_say, {"layer_types": None, "layers_block_type": None}, kinds=("hybrid", "mamba",
            "linear_attention")), wide=2,
        switches=(Switch("use_mem_rope", (True,), False, NOPE),),
            weights=Weights(attention=("layers.{}.shared_transformer.self_attn",), may_lack=("q", "k"))),
    "zaya": Text("ZayaConfig", ZAYA, (2048, 8, 2, 40, 128, 131_072), dicts=("rope_parameters",),
        layers=Layers(alike("hybrid"), BY_NAME, kinds=("hybrid", "hybrid_sliding")), partial=1.0,
            weights=Weights(rows=(Rows("qkv_proj.q_proj", "q"), Rows("qkv_proj.k_proj", "k"),
            Rows("qkv_proj.conv_qk_depthwise", "qk"), Rows("qkv_proj.conv_qk_grouped", "qk"),
            Rows("qkv_proj.conv_qk_grouped.weight.", "h", axis=1)))),
}
# fmt: on
