"""Numbers of heads, layers and channels of a text model, under the names of its family."""

from dataclasses import dataclass

from .heads import LARGEST
from .keys import Keys, near
from .text_row import ANY_NAMES, Facts

LARGEST_HIDDEN = 2**20
LARGEST_COUNT = 2**11  # layers or heads


@dataclass(frozen=True)
class ModelSizes:
    heads: int
    kv_heads: int
    layers: int
    head_dim: int
    max_position: int | None
    length_key: str  # the key that says max_position, or would


def read_sizes(facts: Facts, keys: Keys) -> ModelSizes:
    """The sizes a rotary encoding needs; what the config leaves out is the default of its own class."""
    _, heads_default, _, layers_default, _, _ = facts.sizes
    layers = _size(facts, keys, "layers", layers_default, LARGEST_COUNT)
    heads = _size(facts, keys, "heads", heads_default, LARGEST_COUNT)
    length, length_key = _length(facts, keys)
    head_dim = sum(facts.mla) if facts.mla is not None else _head_dim(facts, keys, heads)
    return ModelSizes(heads, _kv_heads(facts, keys, heads), layers, head_dim, length, length_key)


def _size(facts: Facts, keys: Keys, what: str, default: int | None, most: int) -> int:
    names = getattr(facts.names, what)
    value, path = keys.size(*names, most=most), keys.places[0][0] + names[0]
    if value is not None:
        return value
    _refuse_others(facts, keys, what)
    if default is None:
        raise ValueError(f"{path} is missing, and {facts.config} has no default for it; add it")
    keys.sources[path] = f"not in config: {facts.config}'s default, {default}"
    return default


def _refuse_others(facts: Facts, keys: Keys, what: str) -> None:
    """A size under the name that another family has for it would be replaced by a default without a word."""
    path, data = keys.places[0]
    names = getattr(facts.names, what)
    for name in getattr(ANY_NAMES, what):
        if name not in names and data.get(name) is not None:
            raise ValueError(
                f"{path}{name} is {data[name]!r}, but the code of {facts.config} reads {' or '.join(names) or 'none'}, "
                "which is missing; rename or remove it"
            )


def _kv_heads(facts: Facts, keys: Keys, heads: int) -> int:
    """Key heads: stated, else the class's default, whatever the query heads; null means one per query head."""
    if facts.kv_heads is not None:
        return facts.kv_heads(keys, heads)
    names = facts.names.kv_heads
    if not names:
        return heads
    if (kv := keys.size(*names, most=LARGEST_COUNT)) is not None:
        return kv
    path, data = keys.places[0]
    if null := [name for name in names if name in data]:
        keys.sources[path + null[0]] = f"null: one per query head, {heads}"
        return heads
    default = facts.sizes[2]
    told = f"one per query head, {heads}" if default is None else f"{facts.config}'s default, {default}"
    keys.sources[path + names[0]] = f"not in config: {told}"
    return heads if default is None else default


def _head_dim(facts: Facts, keys: Keys, heads: int) -> int:
    hidden_default, _, _, _, head_default, _ = facts.sizes
    path, data = keys.places[0]
    if (dim := keys.size(*facts.names.head_dim, most=LARGEST)) is not None:
        keys.explain(f"head_dim {dim}", *facts.names.head_dim)
        return dim
    for name in data if "head_dim" in facts.names.head_dim else ():
        if not name.endswith(("_dim", "_head")) and near(name, ("head_dim",)):
            raise ValueError(f"{path}{name} is not understood, and head_dim is missing; did you mean head_dim?")
    if head_default is not None and "head_dim" not in data:
        keys.sources[f"{path}head_dim"] = f"not in config: {facts.config}'s default, {head_default}"
        return head_default
    hidden = _size(facts, keys, "hidden", hidden_default, LARGEST_HIDDEN) * facts.wide
    if hidden % heads and not facts.rounded_down:
        raise ValueError(
            f"{path}head_dim is missing, and {facts.names.hidden[0]} {hidden} is not a multiple of "
            f"{facts.names.heads[0]} {heads}; add head_dim"
        )
    width = hidden // heads
    if not 0 < width <= LARGEST:
        raise ValueError(f"{path}{facts.names.hidden[0]} / {facts.names.heads[0]} must be 1 to {LARGEST}, got {width}")
    keys.sources[f"{path}head_dim"] = f"not in config: hidden_size / num_attention_heads = {width}"
    return width


def _length(facts: Facts, keys: Keys) -> tuple[int | None, str]:
    """The length the config declares, or its class's default; and the key that says it."""
    names, default = facts.names.length, facts.sizes[5]
    if (length := keys.length(*names)) is not None:
        return length, keys.found(*names)[0][0]
    if default is not None:
        _refuse_others(facts, keys, "length")
    key = f"{keys.places[0][0]}{names[0]}"
    if default is not None:
        keys.sources[key] = f"not in config: {facts.config}'s default, {default}"
    return default, key
