"""HunYuan."""

from ...positions import Rule
from ..reading.axes import over_channels
from ..reading.indexer import Indexer
from ..reading.keys import Keys
from ..reading.layers import BY_NAME, Layers, alike
from ..reading.row import CompositeModel, Row
from ..reading.text import TextModel
from ..reading.text_row import Names
from ..weights import Weights
from .weight_names import HUNYUAN, LATENT, LIGHTNING


def by_alpha(rope: Keys) -> str:
    """HunYuan's dynamic scaling is a fixed base where ``alpha`` is stated (DynamicNTKAlpha)."""
    return "alpha" if rope.entries("alpha") else "dynamic"


def all_heads(keys: Keys, heads: int) -> int:
    """HY 4's class sets one key head per query head."""
    keys.explain("no effect: its class sets one per query head", "num_key_value_heads")
    return heads


# fmt: off
ROWS: dict[str, Row] = {
    "hunyuan_v1_dense": TextModel("HunYuanDenseV1Config", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048,
        scheme_names={"dynamic": by_alpha}, notes=("q and k are normalised after the rotation",), weights=HUNYUAN),
    "hunyuan_v1_moe": TextModel("HunYuanMoEV1Config", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048,
        scheme_names={"dynamic": by_alpha}, notes=("q and k are normalised after the rotation",), weights=HUNYUAN),
    "hunyuan_vl": CompositeModel(positions=Rule(after="tokens", axes=4)),
    "hunyuan_vl_text": TextModel("HunYuanVLTextConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048,
        names=Names(head_dim=("head_dim", "attention_head_dim")), scheme_names={"dynamic": by_alpha,
        "xdrope": by_alpha}, tables="rounded", axes=over_channels("mrope_section", "xdrope_section"),
        notes=("q and k are normalised after the rotation",
        "the members of a pair follow different axes, so that image tokens are sheared, not rotated"), weights=HUNYUAN),
    "hy_v3": TextModel("HYV3Config", base=11_158_840.0, hidden=4096, heads=64, kv_heads=8, layers=80, head_dim=128,
        length=131_072),
    "hy_v4": TextModel("HYV4Config", base=10_000.0, hidden=2816, heads=32, layers=34, length=262_144,
        layer_types=Layers(alike("indexed_attention"), BY_NAME, kinds=("indexed_attention",)), kv_heads=all_heads,
        mla=(192, 64), sub_models={"indexer": Indexer(128, 16, trailing=True, weights=LIGHTNING)},
        weights=Weights(rows=LATENT)),
}
# fmt: on
