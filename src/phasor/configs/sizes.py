"""Numbers of heads, layers and channels under their many names."""

from collections.abc import Callable
from dataclasses import dataclass

from .family import Family
from .keys import Keys, agreed, is_dict, near

HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
KV_HEADS = ("num_key_value_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim", "dim_head")
LENGTH = ("max_position_embeddings", "n_positions", "max_seq_len", "model_max_length", "seq_length", "max_length")
OTHER_HEAD_DIMS = (
    "v_head_dim", "qk_head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "global_head_dim", "swa_head_dim",
    "swa_v_head_dim", "index_head_dim", "mamba_head_dim", "linear_head_dim", "attention_head_dim", "mamba_d_head",
)  # fmt: skip


@dataclass(frozen=True)
class ModelSizes:
    heads: int
    kv_heads: int
    layers: int
    head_dim: int
    max_position: int | None


def read_sizes(family: Family, keys: Keys, path: str) -> ModelSizes:
    """The sizes a rotary encoding needs; what the config leaves out is the default of its own class."""
    _, heads_default, kv_default, layers_default, _, length_default = family.sizes

    def size(names: tuple[str, ...], default: int | None) -> int:
        value = keys.whole(*names)
        if value is None and default is None:
            raise ValueError(f"{path}{names[0]} is missing, and {family.config} has no default for it; add it")
        if value is None:
            keys.sources[path + names[0]] = f"not in config: {family.config}'s default, {default}"
        return int(default if value is None else value)  # type: ignore[arg-type]

    layers, heads = size(LAYERS, layers_default), size(HEADS, heads_default)
    kv = keys.whole(*KV_HEADS)
    if kv is None and "num_key_value_heads" not in keys.places[0][1]:
        kv = kv_default if not keys.found(*HEADS) else None
    if inner := keys.get("attn_config", check=is_dict):
        nested = Keys([(f"{path}attn_config.", inner)], keys.sources)
        kv = nested.whole("kv_n_heads") or kv
    if family.config == "FalconConfig":
        kv = _falcon_kv_heads(keys, heads)
    head_dim = _head_dim(family, keys, path, heads, size)
    return ModelSizes(heads, kv or heads, layers, head_dim, _length(keys, length_default))


def _head_dim(
    family: Family, keys: Keys, path: str, heads: int, size: Callable[[tuple[str, ...], int | None], int]
) -> int:
    hidden_default, _, _, _, head_default, _ = family.sizes
    if family.mla is not None:
        keys.found("head_dim")
        return sum(family.mla)
    zamba = family.config == "Zamba2Config"  # attends over two hidden states side by side
    names = ("attention_head_dim",) if zamba else HEAD_DIM
    if (dim := keys.whole(*names)) is not None:
        keys.became(f"head_dim {dim}", *names)
        return dim
    for name in keys.places[0][1]:
        if name not in OTHER_HEAD_DIMS and near(name, HEAD_DIM[:1]):
            raise ValueError(f"{path}{name} is not understood, and head_dim is missing; did you mean head_dim?")
    if head_default is not None and "head_dim" not in keys.places[0][1]:
        keys.sources[f"{path}head_dim"] = f"not in config: {family.config}'s default, {head_default}"
        return head_default
    hidden = size(HIDDEN, hidden_default) * (2 if zamba else 1)
    if hidden % heads:
        raise ValueError(
            f"{path}head_dim is missing, and hidden_size {hidden} is not a multiple of num_attention_heads {heads}; "
            "add head_dim"
        )
    keys.sources[f"{path}head_dim"] = f"not in config: hidden_size / num_attention_heads = {hidden // heads}"
    return int(hidden // heads)


def _length(keys: Keys, default: int | None) -> int | None:
    for name in LENGTH:
        if (length := keys.whole(name)) is not None:
            return length
    return default


def _falcon_kv_heads(keys: Keys, heads: int) -> int:
    grouped = keys.flag("new_decoder_architecture") or not keys.flag("multi_query")
    stated = agreed(keys.found("num_kv_heads"))
    return int(stated or heads) if grouped else 1
