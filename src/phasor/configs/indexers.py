"""Indexers of sparse attention: small attentions beside the main one that choose its keys, with rotations of their own.

They use the main attention's frequencies on heads of another width, and often in another layout.
"""

from dataclasses import dataclass, replace
from typing import Any

from ..spec import RotarySpec
from .keys import Keys, agreed, is_dict
from .model import ModelRotary
from .without import no_rotary

INDEXER = "indexer"
MINIMAX = {"index_head_dim": ("index_head_dim", "sparse_index_dim"),
           "index_n_heads": ("index_n_heads", "sparse_num_index_heads")}  # fmt: skip


@dataclass(frozen=True)
class Indexer:
    """The indexer of one family: default width and number of heads, layout, and the kind of layers that have one."""

    head_dim: int | None
    heads: int | None
    interleaved: bool = False
    permuted: bool = False
    trailing: bool = False
    word: str = "indexed_attention"
    names: tuple[str, str] = ("index_head_dim", "index_n_heads")
    notes: tuple[str, ...] = ()


INDEXERS = {  # model type -> what its indexer class does in transformers 5.23
    "axk2": Indexer(128, 16),
    "deepseek_v32": Indexer(128, 64),
    "deepseek_v4": Indexer(128, 64, interleaved=True, trailing=True, word="compressed_sparse_attention",
        notes=("keys are pooled and stand at the first position of their block",)),
    "dots3_note_text": Indexer(128, 64, interleaved=True, permuted=True),
    "glm_moe_dsa": Indexer(128, 32, interleaved=True, permuted=True),
    "hy_v4": Indexer(128, 16, trailing=True),
    "minimax_m3_vl_text": Indexer(128, 4, word="minimax_m3_sparse"),
    "mistral_large4_text": Indexer(128, 32, interleaved=True, permuted=True),
    "qwen4_exp_text": Indexer(None, None, names=("indexer_head_dim", "indexer_n_heads"),
        notes=("keys are pooled and stand at the first position of their block",)),
}  # fmt: skip


def has_indexer(name: str, data: dict[str, Any]) -> bool:
    """Whether a config of this family has an indexer."""
    return name in INDEXERS and (INDEXERS[name].head_dim is not None or data.get("indexer_head_dim") is not None)


def read_indexer(name: str, data: dict[str, Any], model: ModelRotary, path: str) -> ModelRotary:
    """The indexer beside the attention ``model``, which was read from the same config."""
    indexer, keys = INDEXERS[name], Keys([(path, data)], {})
    inner = keys.get("sparse_attention_config", check=is_dict) or {}  # MiniMax M3's published form
    given = Keys([*keys.places, (f"{path}sparse_attention_config.", inner)], keys.sources)
    sizes: list[int] = []
    for key, default in zip(indexer.names, (indexer.head_dim, indexer.heads), strict=True):
        size = given.size(*MINIMAX.get(key, (key,)))
        if size is None and default is None:
            raise ValueError(f"{path}{key} is missing: the indexer of {name} needs it; add it")
        keys.sources[path + key] = f"{key} {size}" if size else f"not in config: its class's default, {default}"
        sizes.append(size or default or 0)
    said = keys.flag("indexer_rope_interleave")
    agreed([(f"the code of {name}", indexer.interleaved), *keys.found("indexer_rope_interleave")])
    if said is not None:
        keys.became("interleaved pairs" if said else "halves", "indexer_rope_interleave")
    kinds = keys.get("indexer_types") or ["full"] * len(model.layers)
    if not isinstance(kinds, list | tuple) or len(kinds) < len(model.layers):
        raise ValueError(
            f"{path}indexer_types must have one word per layer, {len(model.layers)} here, got {kinds!r:.80}"
        )
    keys.became("which layers have an indexer of their own", "indexer_types")
    layers = tuple(
        None if spec is None or word != indexer.word or kind == "shared" else _own(spec, indexer, sizes[0])
        for spec, word, kind in zip(model.layers, model.layer_types, kinds, strict=False)
    )
    if not any(layers):
        raise no_rotary(name, f"has an indexer in none of its {len(layers)} layers")
    return replace(
        model, layers=layers, num_heads=sizes[1], num_kv_heads=1, part=f"{path}{INDEXER}", targets=("q", "k"),
        sources={**model.sources, **keys.sources}, softmax_factor=1.0, notes=indexer.notes,
    )  # fmt: skip


def _own(spec: RotarySpec, indexer: Indexer, head_dim: int) -> RotarySpec:
    return spec.replace(
        head_dim=head_dim, rotary_dim=spec.rotary_dim, interleaved=indexer.interleaved, permuted=indexer.permuted,
        trailing=indexer.trailing,
    )  # fmt: skip
