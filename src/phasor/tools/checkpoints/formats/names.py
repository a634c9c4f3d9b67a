"""Names of a plain Llama's tensors: transformers' own, and those of formats that have others."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

# transformers' name -> Meta's; {} is the number of the layer
META = {
    "model.embed_tokens.weight": "tok_embeddings.weight",
    "model.layers.{}.input_layernorm.weight": "layers.{}.attention_norm.weight",
    "model.layers.{}.self_attn.q_proj.weight": "layers.{}.attention.wq.weight",
    "model.layers.{}.self_attn.k_proj.weight": "layers.{}.attention.wk.weight",
    "model.layers.{}.self_attn.v_proj.weight": "layers.{}.attention.wv.weight",
    "model.layers.{}.self_attn.o_proj.weight": "layers.{}.attention.wo.weight",
    "model.layers.{}.post_attention_layernorm.weight": "layers.{}.ffn_norm.weight",
    "model.layers.{}.mlp.gate_proj.weight": "layers.{}.feed_forward.w1.weight",
    "model.layers.{}.mlp.down_proj.weight": "layers.{}.feed_forward.w2.weight",
    "model.layers.{}.mlp.up_proj.weight": "layers.{}.feed_forward.w3.weight",
    "model.norm.weight": "norm.weight",
    "lm_head.weight": "output.weight",
}
TIED = "lm_head.weight"


def of_layers(names: Mapping[str, str], layers: int) -> dict[str, str]:
    """The names of all layers spelled out.

    >>> of_layers({"a.{}": "b.{}", "c": "d"}, 2)
    {'a.0': 'b.0', 'a.1': 'b.1', 'c': 'd'}
    """
    return {
        ours.format(i): theirs.format(i)
        for ours, theirs in names.items()
        for i in range(layers if "{}" in ours else 1)
    }  # fmt: skip


def own_names(path: Path, layers: Any, tensors: Collection[str]) -> dict[str, str]:
    """Meta's name -> transformers' for a model of so many layers, which the tensors must be enough for."""
    if not isinstance(layers, int) or isinstance(layers, bool) or not 1 <= layers <= len(tensors):
        raise ValueError(
            f"{path}: n_layers must be a number of layers that {len(tensors)} tensors make, got {layers!r}"
        )
    return {theirs: ours for ours, theirs in of_layers(META, layers).items()}
