"""Phi."""

from ..reading.layers import WINDOWED
from ..reading.model_row import Row
from ..reading.text import Text
from ..reading.text_row import ANY_NAMES
from ..weights import Rows, Weights
from .weight_names import LAYERNORM

# fmt: off
ROWS: dict[str, Row] = {
    "mixformer-sequential": Text("MixFormerSequentialConfig", 10_000.0, names=ANY_NAMES, widths=("rotary_dim",),
        reads={"flash_rotary": "no effect: which kernel rotates"}, partial=1.0, tables="rounded",
            weights=Weights(attention=("layers.{}.mixer",), rows=(Rows("Wqkv", "qkv"),), stacks="loop", source="read")),
    "phi": Text("PhiConfig", 10_000.0, (2048, 32, None, 24, None, 2048), partial=0.5, weights=LAYERNORM),
    "phi3": Text("Phi3Config", 10_000.0, (3072, 32, None, 32, None, 4096), layers=WINDOWED,
        spelled={"su": "longrope", "yarn": "longrope"}, partial=1.0, weights=Weights(rows=(Rows("qkv_proj", "qkv"),))),
    "phi4_multimodal": Text("Phi4MultimodalConfig", 10_000.0, (3072, 32, 8, 32, None, 131_072), layers=WINDOWED,
        spelled={"su": "longrope", "yarn": "longrope"}, partial=1.0, weights=Weights(rows=(Rows("qkv_proj", "qkv"),))),
    "phimoe": Text("PhimoeConfig", 1_000_000.0, (4096, 32, 8, 32, None, 131_072), layers=WINDOWED,
        spelled={"su": "longrope"},
        notes=("transformers never uses long_factor; the model's own code does, and so does this spec",)),
}
# fmt: on
ROWS |= {"phi4mm": ROWS["phi4_multimodal"]}
