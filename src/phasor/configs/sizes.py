"""Numbers of heads, layers and channels under their many names."""

from collections.abc import Callable
from dataclasses import dataclass

from .family import Family
from .keys import Keys, agreed, is_dict, is_size, near

HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
KV_HEADS = ("num_key_value_heads", "n_kv_heads", "n_head_kv", "multi_query_group_num", "num_attention_groups")
HEAD_DIM = ("head_dim", "kv_channels", "attention_head_dim", "dim_head")
LENGTH = ("max_position_embeddings", "n_positions", "max_seq_len")
OWN_LENGTH = {  # classes whose length has another name, which means something else elsewhere (max_length: generation)
    "BailingHybridConfig": ("max_position_embeddings", "model_max_length"),
    "ChatGLMConfig": ("seq_length", "max_sequence_length"),
    "NeoBERTConfig": ("max_length",),
}
OTHER_HEAD_DIMS = (
    "v_head_dim", "qk_head_dim", "qk_nope_head_dim", "qk_rope_head_dim", "global_head_dim", "swa_head_dim",
    "swa_v_head_dim", "index_head_dim", "mamba_head_dim", "linear_head_dim", "attention_head_dim", "mamba_d_head",
)  # fmt: skip


ROUNDED_DOWN = ("Glm4MoeConfig",)  # hidden_size / num_attention_heads need not come out even


@dataclass(frozen=True)
class ModelSizes:
    heads: int
    kv_heads: int
    layers: int
    head_dim: int
    max_position: int | None
    length_key: str


def read_sizes(family: Family, keys: Keys, path: str) -> ModelSizes:
    """The sizes a rotary encoding needs; what the config leaves out is the default of its own class."""
    _, heads_default, _, layers_default, _, _ = family.sizes

    def size(names: tuple[str, ...], default: int | None) -> int:
        value = keys.size(*names)
        if value is None and default is None:
            raise ValueError(f"{path}{names[0]} is missing, and {family.config} has no default for it; add it")
        if value is None:
            keys.sources[path + names[0]] = f"not in config: {family.config}'s default, {default}"
        return int(default if value is None else value)  # type: ignore[arg-type]

    layers, heads = size(LAYERS, layers_default), size(HEADS, heads_default)
    head_dim = _head_dim(family, keys, path, heads, size)
    length, length_key = _length(family, keys, path)
    return ModelSizes(heads, _kv_heads(family, keys, path, heads), layers, head_dim, length, length_key)


def _kv_heads(family: Family, keys: Keys, path: str, heads: int) -> int:
    """Key heads: stated, else the class's default, whatever the query heads; null means one per query head."""
    if family.config == "FalconConfig":
        return _falcon_kv_heads(keys, path, heads)
    if family.config == "DbrxConfig":
        return _dbrx_kv_heads(keys, path)
    if family.config == "HYV4Config":
        keys.became("no effect: its class sets one per query head", *KV_HEADS)
        return heads
    if (kv := keys.size(*KV_HEADS)) is not None:
        return kv
    default = family.sizes[2]
    if null := [name for name in KV_HEADS if name in keys.places[0][1]]:
        keys.sources[path + null[0]] = f"null: one per query head, {heads}"
        return heads
    told = f"one per query head, {heads}" if default is None else f"{family.config}'s default, {default}"
    keys.sources[f"{path}{KV_HEADS[0]}"] = f"not in config: {told}"
    return heads if default is None else default


def _head_dim(
    family: Family, keys: Keys, path: str, heads: int, size: Callable[[tuple[str, ...], int | None], int]
) -> int:
    hidden_default, _, _, _, head_default, _ = family.sizes
    if family.mla is not None:
        keys.found("head_dim")
        return sum(family.mla)
    zamba = family.config == "Zamba2Config"  # attends over two hidden states side by side
    names = ("attention_head_dim",) if zamba else HEAD_DIM
    if zamba:
        keys.became("no effect: attention_head_dim says the channels", "kv_channels")
    if (dim := keys.size(*names)) is not None:
        keys.became(f"head_dim {dim}", *names)
        return dim
    for name in keys.places[0][1]:
        if name not in OTHER_HEAD_DIMS and near(name, HEAD_DIM[:1]):
            raise ValueError(f"{path}{name} is not understood, and head_dim is missing; did you mean head_dim?")
    if head_default is not None and "head_dim" not in keys.places[0][1]:
        keys.sources[f"{path}head_dim"] = f"not in config: {family.config}'s default, {head_default}"
        return head_default
    hidden = size(HIDDEN, hidden_default) * (2 if zamba else 1)
    if hidden % heads and family.config not in ROUNDED_DOWN:
        raise ValueError(
            f"{path}head_dim is missing, and hidden_size {hidden} is not a multiple of num_attention_heads {heads}; "
            "add head_dim"
        )
    keys.sources[f"{path}head_dim"] = f"not in config: hidden_size / num_attention_heads = {hidden // heads}"
    return int(hidden // heads)


def _length(family: Family, keys: Keys, path: str) -> tuple[int | None, str]:
    """The length the config declares, or its class's default; and the key that says it."""
    names, default = OWN_LENGTH.get(family.config, LENGTH), family.sizes[5]
    if (length := keys.whole(*names)) is not None:
        return length, keys.found(*names)[0][0]
    key = f"{path}{names[0]}"
    if default is not None:
        keys.sources[key] = f"not in config: {family.config}'s default, {default}"
    return default, key


def _falcon_kv_heads(keys: Keys, path: str, heads: int) -> int:
    """One key head for all (``multi_query``, the class's default), unless the decoder is the new one."""
    stated, key = keys.size("num_kv_heads"), f"{path}num_kv_heads"
    new, shared = keys.flag("new_decoder_architecture"), keys.flag("multi_query")
    if not new and shared is not False:
        keys.sources[key] = "no effect: multi_query, one key head for all query heads"
        if shared is None:
            keys.sources[f"{path}multi_query"] = "not in config: FalconConfig's default, true"
        return 1
    if stated is None:
        keys.sources[key] = f"not in config: one per query head, {heads}"
    return heads if stated is None else stated


def _dbrx_kv_heads(keys: Keys, path: str) -> int:
    """``attn_config.kv_n_heads``, which is all that its attention reads."""
    key = f"{path}attn_config.kv_n_heads"
    inner = keys.get("attn_config", check=is_dict) or {}
    stated = Keys([(f"{path}attn_config.", inner)], keys.sources).size("kv_n_heads")
    if stated is None:
        keys.sources[key] = "not in config: DbrxAttentionConfig's default, 1"
    kv: int = agreed([(key, 1 if stated is None else stated), *keys.found(*KV_HEADS)], is_size)
    return kv
