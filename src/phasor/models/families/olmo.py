"""OLMo and Molmo."""

from dataclasses import replace

from ..reading.keys import Keys
from ..reading.layers import BY_NAME, Layers, every
from ..reading.model import ModelRotary
from ..reading.model_row import Row
from ..reading.text import Text
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
    "flex_olmo": Text("FlexOlmoConfig", 500_000.0, (4096, 32, None, 32, None, 4096), tables="float32"),
    "molmo": Text("MolmoConfig", 10_000.0, names=ANY_NAMES, tables="float32",
        weights=Weights(attention=("blocks.{}",), rows=(Rows("att_proj", "qkv"),), source="read")),
    "molmo2_text": Text("Molmo2TextConfig", 10_000.0, (4096, 32, 8, 36, 128, 36_864), after=some_unscaled,
        published=Weights(attention=("blocks.{}.self_attn",), rows=(Rows("att_proj", "qkv"),), source="read")),
    "olmo": Text("OlmoConfig", 10_000.0, (4096, 32, None, 32, None, 2048), tables="float32"),
    "olmo2": Text("Olmo2Config", 10_000.0, (4096, 32, None, 32, None, 2048), tables="float32",
        gguf=Gguf("olmo2", interleaved=False)),
    "olmo3": Text("Olmo3Config", OLMO3, (4096, 32, None, 32, None, 2048), fills=True,
        layers=Layers(every(4), BY_NAME),
        tables="float32"),
    "olmo_hybrid": Text("OlmoHybridConfig", 10_000.0, (3840, 30, None, 32, None, 65_536),
        layers=Layers(every(4, others="linear_attention"), BY_NAME, kinds=("linear_attention",)), tables="float32"),
    "olmoe": Text("OlmoeConfig", 10_000.0, (2048, 16, None, 16, None, 4096)),
}
# fmt: on
