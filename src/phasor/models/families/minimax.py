"""MiniMax and MiniCPM."""

from dataclasses import replace
from typing import Any

from ..reading.indexer import Indexer
from ..reading.keys import Keys, is_dict
from ..reading.layers import BY_NAME, Layers, must_say
from ..reading.model_row import Chosen, Row
from ..reading.text import Text
from ..reading.text_row import ANY_NAMES
from ..weights import Weights
from .weight_names import LATENT


def sparse(keys: Keys, count: int) -> list[str]:
    """MiniMax M3's published form: a list of the layers with sparse attention (1) in a dictionary of its own."""
    inner = keys.get("sparse_attention_config", check=is_dict) or {}
    path = f"{keys.places[0][0]}sparse_attention_config."
    flags = Keys([(path, inner)], keys.sources).wholes("sparse_attention_freq")
    if flags is None:
        return ["full_attention"] * count
    return ["minimax_m3_sparse" if flag else "full_attention" for flag in flags]


M3 = Text(
    "MiniMaxM3VLTextConfig", 5_000_000.0, (6144, 64, 4, 60, 128, 524_288), widths=("rotary_dim",),
    layers=Layers(sparse, BY_NAME, kinds=("minimax_m3_sparse",)), partial=0.5,
    notes=("transformers reads partial_rotary_factor only: without it, it turns all channels",),
    argued={"frequencies, theirs": "its module drops rotary_dim; checkpoints state both keys, and they agree"},
    inner={"indexer": Indexer(128, 4, word="minimax_m3_sparse", nested="sparse_attention_config",
                              inside=("sparse_index_dim", "sparse_num_index_heads"),
                              weights=Weights(attention=("layers.{}.self_attn.indexer",)))},
)  # fmt: skip

# fmt: off
ROWS: dict[str, Row | Chosen] = {
    "minicpm": Text("MiniCPMConfig", 10_000.0, names=ANY_NAMES, spelled={"su": "longrope"}, tables="float32",
        weights=Weights(source="read")),
    "minicpm3": Text("MiniCPM3Config", 10_000.0, (2560, 40, 40, 62, None, 32_768), spelled={"su": "longrope"},
        mla=(64, 32), weights=Weights(rows=LATENT)),
    "minimax": Text("MiniMaxConfig", 1_000_000.0, (4096, 32, 8, 32, None, 131_072),
        layers=Layers(must_say, {**BY_NAME, "attn_type_list": {0: "linear_attention", 1: "full_attention"}},
            kinds=("linear_attention",))),
    "minimax_m2": Text("MiniMaxM2Config", 5_000_000.0, (3072, 48, 8, 62, 128, 196_608), widths=("rotary_dim",),
        layers=Layers(listed={"attn_type_list": {1: "full_attention"}}),
        partial=1.0),
    "minimax_m3": replace(M3, frame=True),
    "minimax_m3_vl_text": M3,
}
# fmt: on
# other names of the same code; some configs have no model_type, only architectures
ROWS |= {"minicpm4": ROWS["minicpm"]}
ROWS |= {"MiniCPM3ForCausalLM": Chosen(lambda data: "minicpm3")}
ROWS |= dict.fromkeys(("MiniCPMForCausalLM", "MiniCPM4ForCausalLM"), Chosen(lambda data: "minicpm"))


def minicpmv(data: dict[str, Any]) -> str:
    """MiniCPM-V tells its language model by its version."""
    names, version = {2.6: "qwen2", 4.0: "llama"}, data.get("version")
    if not isinstance(version, int | float) or version not in names:
        raise ValueError(f"version must say which language model this minicpmv holds (2.6 or 4.0), got {version!r}")
    return names[version]


ROWS |= {"minicpmv": Chosen(minicpmv)}
