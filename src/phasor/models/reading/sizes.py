"""Numbers of heads, layers and channels of a text model, under the names of its family."""

from dataclasses import dataclass

from .keys import Keys, near
from .layers import LARGEST_HEAD, Head, read_latent_head
from .refusal import Reason, Refused, contradiction, unread
from .text_row import ANY_NAMES, TextRow

LARGEST_HIDDEN = 2**20
LARGEST_COUNT = 2**11  # layers or heads


@dataclass(frozen=True)
class ModelSizes:
    heads: int
    kv_heads: int
    layers: int
    head: Head
    max_position: int | None
    length_key: str  # the key that says max_position, or would


def read_sizes(row: TextRow, keys: Keys) -> ModelSizes:
    """The sizes a rotary encoding needs; what the config leaves out is the default of its own class."""
    layers = _size(row, keys, "layers", row.layers, LARGEST_COUNT)
    heads = _size(row, keys, "heads", row.heads, LARGEST_COUNT)
    length, length_key = _length(row, keys)
    if row.mla is None:
        head = Head(_head_dim(row, keys, heads))
    else:
        head = read_latent_head(keys, row.mla, row.config, strict=row.interleave_key)
    return ModelSizes(heads, _kv_heads(row, keys, heads), layers, head, length, length_key)


def _size(row: TextRow, keys: Keys, what: str, default: int | None, most: int) -> int:
    names = getattr(row.names, what)
    value, path = keys.size(*names, most=most), keys.places[0][0] + names[0]
    if value is not None:
        return value
    _refuse_others(row, keys, what)
    if default is None:
        raise ValueError(f"{path} is missing, and {row.config} has no default for it; add it")
    keys.sources[path] = f"not in config: {row.config}'s default, {default}"
    return default


def _refuse_others(row: TextRow, keys: Keys, what: str) -> None:
    """A size under the name that another family has for it would be replaced by a default without a word."""
    path, data = keys.places[0]
    names = getattr(row.names, what)
    for name in getattr(ANY_NAMES, what):
        if name not in names and data.get(name) is not None:
            why = f"the code of {row.config} reads {' or '.join(names) or 'none'}"
            text = f"{path}{name} is {data[name]!r}, but {why}, which is missing; rename or remove it"
            raise Refused(text, Reason.FOREIGN, path + name)


def _kv_heads(row: TextRow, keys: Keys, heads: int) -> int:
    """Key heads: stated, else the class's default, whatever the query heads; null means one per query head."""
    default = row.kv_heads
    if callable(default):
        return default(keys, heads)
    names = row.names.kv_heads
    if not names:
        return heads
    path, data = keys.places[0]
    if (kv := keys.size(*names, most=LARGEST_COUNT)) is not None:
        if heads % kv:
            (where, _), *_ = keys.entries(*names)
            raise ValueError(f"{where} must divide the number of query heads, {heads}, got {kv}; mend one of them")
        return kv
    if null := [name for name in names if name in data]:
        keys.sources[path + null[0]] = f"null: one per query head, {heads}"
        return heads
    meaning = f"one per query head, {heads}" if default is None else f"{row.config}'s default, {default}"
    keys.sources[path + names[0]] = f"not in config: {meaning}"
    return heads if default is None else default


def _head_dim(row: TextRow, keys: Keys, heads: int) -> int:
    default, (path, data) = row.head_dim, keys.places[0]
    if (dim := keys.size(*row.names.head_dim, most=LARGEST_HEAD)) is not None:
        keys.explain(f"head_dim {dim}", *row.names.head_dim)
        return dim
    for name in data if "head_dim" in row.names.head_dim else ():
        if not name.endswith(("_dim", "_head")) and near(name, ("head_dim",)):
            raise unread(path + name, data[name], "head_dim is missing; did you mean head_dim?")
    if isinstance(default, int) and "head_dim" not in data:
        keys.sources[f"{path}head_dim"] = f"not in config: {row.config}'s default, {default}"
        return default
    hidden = _size(row, keys, "hidden", row.hidden, LARGEST_HIDDEN)
    width = default(hidden, heads) if callable(default) else hidden / heads
    if width != int(width):
        first, second = path + row.names.hidden[0], path + row.names.heads[0]
        raise contradiction(first, second, (hidden, heads), "the first must be a multiple of the second; add head_dim")
    if not 0 < width <= LARGEST_HEAD:
        name = path + row.names.hidden[0]
        raise Refused(f"{name} / heads must be 1 to {LARGEST_HEAD}, got {width}", Reason.BEYOND, name)
    keys.sources[f"{path}head_dim"] = f"not in config: hidden_size / num_attention_heads = {int(width)}"
    return int(width)


def _length(row: TextRow, keys: Keys) -> tuple[int | None, str]:
    """The length the config declares, or its class's default; and the key that says it."""
    names, default = row.names.length, row.length
    if (length := keys.length(*names)) is not None:
        return length, keys.entries(*names)[0][0]
    key = f"{keys.places[0][0]}{names[0]}"
    if default is not None:
        _refuse_others(row, keys, "length")
        keys.sources[key] = f"not in config: {row.config}'s default, {default}"
    return default, key
