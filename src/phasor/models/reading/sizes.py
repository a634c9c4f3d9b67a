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
    layers, heads = (_size(row, keys, what, LARGEST_COUNT) for what in ("layers", "heads"))
    length, length_key = _length(row, keys)
    if row.mla is None:
        head = Head(_head_dim(row, keys, heads))
    else:
        head = read_latent_head(keys, row.mla, strict=row.interleave_key)
    return ModelSizes(heads, _kv_heads(row, keys, heads), layers, head, length, length_key)


def _size(row: TextRow, keys: Keys, what: str, most: int) -> int:
    names, default = getattr(row.names, what), getattr(row, what)
    if (value := keys.size(*names, most=most)) is None:
        _refuse_others(row, keys, what)
        if default is None:
            raise ValueError(f"{keys.path}{names[0]} is missing, and {row.config} has no default for it; add it")
        keys.default(names[0], str(default))
    return int(default if value is None else value)


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
    names, default = row.names.kv_heads, row.kv_heads
    if callable(default):
        return default(keys, heads)
    if (kv := keys.size(*names, most=LARGEST_COUNT)) is not None:
        if heads % kv:
            (where, _), *_ = keys.entries(*names)
            raise ValueError(f"{where} must divide the number of query heads, {heads}, got {kv}; mend one of them")
        return kv
    if null := keys.nulls(*names):
        keys.sources[null[0]] = f"null: one per query head, {heads}"
    elif names and default is None:
        keys.absent(names[0], f"one per query head, {heads}")
    elif names:
        keys.default(names[0], str(default))
        return default or heads
    return heads


def _head_dim(row: TextRow, keys: Keys, heads: int) -> int:
    default, (path, data) = row.head_dim, keys.places[0]
    if (dim := keys.size(*row.names.head_dim, most=LARGEST_HEAD)) is not None:
        keys.explain(f"head_dim {dim}", *row.names.head_dim)
        return dim
    for name in data if "head_dim" in row.names.head_dim else ():
        if not name.endswith(("_dim", "_head")) and near(name, ("head_dim",)):
            raise unread(path + name, data[name], "head_dim is missing; did you mean head_dim?")
    if isinstance(default, int) and "head_dim" not in data:
        keys.default("head_dim", str(default))
        return default
    hidden = _size(row, keys, "hidden", LARGEST_HIDDEN)
    width = default(hidden, heads) if callable(default) else hidden / heads
    first, second = path + row.names.hidden[0], path + row.names.heads[0]
    if width != int(width):
        raise contradiction(first, second, (hidden, heads), "the first must be a multiple of the second; add head_dim")
    if not 0 < width <= LARGEST_HEAD:
        raise Refused(f"{first} / heads must be 1 to {LARGEST_HEAD}, got {width}", Reason.BEYOND, first)
    keys.absent("head_dim", f"hidden_size / num_attention_heads = {int(width)}")
    return int(width)


def _length(row: TextRow, keys: Keys) -> tuple[int | None, str]:
    """The length the config declares, or its class's default; and the key that says it."""
    names = row.names.length
    if (length := keys.length(*names)) is not None:
        return length, keys.entries(*names)[0][0]
    if row.length is not None:
        _refuse_others(row, keys, "length")
        keys.default(names[0], str(row.length))
    return row.length, keys.path + names[0]
