"""OLMo and Molmo."""

from dataclasses import replace

from ...rotary.model_rotary import ModelRotary
from ..reading.keys import Keys
from ..reading.layers import BY_NAME, Layers, every
from ..reading.row import Row
from ..reading.text import TextModel
from ..reading.text_row import ANY_NAMES, Rope
from ..weights import Gguf, Rows, Weights

OLMO3 = {
    "sliding_attention": Rope(500_000.0, top=()),  # its class hands rope_theta to the other kind alone
    "full_attention": Rope(500_000.0, flat=("rope_scaling",)),
}


def some_unscaled(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Molmo 2 scales the layers that ``rope_scaling_layers`` lists, and no others."""
    scaled = keys.wholes("rope_scaling_layers")
    keys.explain("the layers that are scaled", "rope_scaling_layers")
    if scaled is None:
        return model
    plain = {spec: spec.replace(scaling=None) for spec in model.distinct}
    layers = (s if s is None or i in scaled else plain[s] for i, s in enumerate(model.layers))
    return replace(model, layers=tuple(layers))


# fmt: off
ROWS: dict[str, Row] = {
    "flex_olmo": TextModel("FlexOlmoConfig", base=500_000.0, hidden=4096, heads=32, layers=32, length=4096,
        tables="float32"),
    "molmo": TextModel("MolmoConfig", in_transformers=False, base=10_000.0, names=ANY_NAMES, tables="float32",
        weights=Weights(attention=("blocks.{}",), rows=(Rows("att_proj", "qkv"),), source="read")),
    "molmo2_text": TextModel("Molmo2TextConfig", base=10_000.0, hidden=4096, heads=32, kv_heads=8, layers=36,
        head_dim=128, length=36_864, after=some_unscaled, published=Weights(attention=("blocks.{}.self_attn",),
        rows=(Rows("att_proj", "qkv"),), source="read")),
    "olmo": TextModel("OlmoConfig", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048, tables="float32"),
    "olmo2": TextModel("Olmo2Config", base=10_000.0, hidden=4096, heads=32, layers=32, length=2048, tables="float32",
        gguf=Gguf("olmo2", interleaved=False)),
    "olmo3": TextModel("Olmo3Config", rope=OLMO3, hidden=4096, heads=32, layers=32, length=2048, fills_defaults=True,
        layer_types=Layers(every(4), BY_NAME), tables="float32"),
    "olmo_hybrid": TextModel("OlmoHybridConfig", base=10_000.0, hidden=3840, heads=30, layers=32, length=65_536,
        layer_types=Layers(every(4, others="linear_attention"), BY_NAME, kinds=("linear_attention",)),
        tables="float32"),
    "olmoe": TextModel("OlmoeConfig", base=10_000.0, hidden=2048, heads=16, layers=16, length=4096),
}
# fmt: on
