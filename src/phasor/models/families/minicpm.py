"""MiniCPM, and the language models inside MiniCPM-V."""

from typing import Any

from ..reading.row import Alias, Row, with_text
from ..reading.text import TextModel
from ..reading.text_row import ANY_NAMES
from ..weights import Weights
from .weight_names import LATENT


def minicpmv(data: dict[str, Any]) -> str:
    """MiniCPM-V tells its language model by its version."""
    names, version = {2.6: "qwen2", 4.0: "llama"}, data.get("version")
    if not isinstance(version, int | float) or version not in names:
        raise ValueError(f"version must say which language model this minicpmv holds (2.6 or 4.0), got {version!r}")
    return names[version]


# fmt: off
ROWS: dict[str, Row | Alias] = {
    **with_text("qwen3_5_text", "minicpm_ocr", "minicpmv4_6", "minicpmv4_7"),
    "minicpm": TextModel("MiniCPMConfig", in_transformers=False, base=10_000.0, names=ANY_NAMES,
        scheme_names={"su": "longrope"}, tables="float32", weights=Weights(source="read")),
    "minicpm3": TextModel("MiniCPM3Config", base=10_000.0, hidden=2560, heads=40, kv_heads=40, layers=62,
        length=32_768, scheme_names={"su": "longrope"}, mla=(64, 32), weights=Weights(rows=LATENT)),
    "minicpmv": Alias(minicpmv),
}
# fmt: on
# other names of the same code; some configs have no model_type, only architectures
ROWS |= {"minicpm4": ROWS["minicpm"]}
ROWS |= {"MiniCPM3ForCausalLM": Alias(lambda data: "minicpm3")}
ROWS |= dict.fromkeys(("MiniCPMForCausalLM", "MiniCPM4ForCausalLM"), Alias(lambda data: "minicpm"))
