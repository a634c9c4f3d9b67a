"""What differs from layer to layer: its kind, whether it rotates, the width of its heads, and its window.

Each is listed in the config, or follows a rule of the family's code.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .keys import ROPE_WORDS, Keys, agreed, is_dict, is_list, is_size
from .refusal import contradiction, not_understood

ATTENTION = {
    "attention", "full_attention", "sliding_attention", "chunked_attention", "indexed_attention", "hybrid",
    "hybrid_sliding", "compressed_sparse_attention", "heavily_compressed_attention", "minimax_m3_sparse",
    "reference_sliding_attention",
}  # fmt: skip
SPELLINGS = {"LLLG": 4, "full": "full_attention", "sliding": "sliding_attention", "global": "full_attention"}

Usual = Callable[[Keys, int], list[str]]
Rotates = Callable[[Keys, tuple[str, ...]], list[bool]]


def pattern(
    keys: Keys, count: int, *, period: Sequence[str] = ("attention",), first: Sequence[str] = (),
    last: Sequence[str] = (), from_last: bool = False,
) -> list[str]:  # fmt: skip
    """The words of ``period`` again and again, except for the ``first`` layers, and then for the ``last`` ones.

    ``from_last``: the period counts from the last layer back.

    >>> pattern(Keys([]), 5, period=("a", "b"), first=("x",), last=("y",))
    ['x', 'b', 'a', 'b', 'y']
    """
    words = [period[(count - 1 - i if from_last else i) % len(period)] for i in range(count)]
    words[: len(first)] = first[:count]
    words[max(count - len(last), 0) :] = last[:count]
    return words


@dataclass(frozen=True)
class Layers:
    """The kinds of layers of a family: what its code makes of a config, listed or not.

    - ``usual``: the kinds where the config lists none.
    - ``listed``: keys that may list them -> what their entries mean (None: they are the kinds themselves).
    - ``kinds``: those that there may be, besides full and sliding attention.
    - ``last``: the kind of the last layer, whatever is listed.
    - ``windowed``: every layer has the window of ``sliding_window``, if there is one; ``two_sided``: a key with the
      width of a window to both sides.
    """

    usual: Usual = pattern
    listed: Mapping[str, Mapping[Any, str] | None] = field(default_factory=dict)
    kinds: Collection[str] = ()
    last: str = ""
    windowed: bool = False
    two_sided: str = ""

    def read(self, keys: Keys, count: int, model_type: str) -> tuple[str, ...]:
        """One kind per layer; raises ``ValueError`` for another number, and for a kind the family does not have."""
        words = self._stated(keys, count)
        words = self.usual(keys, count) if words is None else words
        if len(words) != count:
            where, number = [path for path, _ in keys.entries(*self.listed)], f"{keys.path}num_hidden_layers"
            out = "the types of the layers must be one for each"
            raise contradiction(" and ".join(where) or "the config", number, (words, count), out, *where, number)
        known = {"attention", "full_attention", "sliding_attention", *self.kinds}
        for i, word in enumerate(words):
            if word not in known:
                why = f"a kind of layer that the code of {model_type} does not have; known: {', '.join(sorted(known))}"
                raise ValueError(f"layer {i} is {word!r}, {why}")
        if self.last and words[-1] != self.last:
            keys.sources[f"{keys.path}layer_types[{count - 1}]"] = f"no effect: the last layer is {self.last}"
            words = [*words[:-1], self.last]
        return tuple(words)

    def _stated(self, keys: Keys, count: int) -> list[str] | None:
        extra = keys.whole("num_nextn_predict_layers", "num_mtp_layers", at_least=0) or 0
        stated = [(path, self._meant(path, v, name)) for name in self.listed for path, v in keys.entries(name)]
        keys.explain("the types of the layers", *self.listed)
        # what is over belongs to the layers that predict further tokens
        words: list[str] | None = agreed([(p, w[:count] if len(w) == count + extra else w) for p, w in stated])
        return words

    def _meant(self, path: str, values: Any, name: str) -> list[str]:
        is_list(path, values)
        meaning = self.listed[name]
        for value in values:
            if isinstance(value, bool) or not isinstance(value, str if meaning is None else int):
                raise ValueError(f"{path} must be a list of {'words' if meaning is None else 'numbers'}, got {value!r}")
            if meaning is not None and value not in meaning:
                raise ValueError(f"{path} has the value {value!r}; known: {sorted(meaning)}")
        return [str(SPELLINGS.get(v, v)) if meaning is None else meaning[v] for v in values]


def every(
    keys: Keys, count: int, *, n: int, key: str, others: str = "sliding_attention", full: str = "full_attention",
    from_first: bool = False, least: int = 0,
) -> list[str]:  # fmt: skip
    """Every ``n``-th layer attends to everything, and the key may state another ``n``, ``least`` or more (0: all).

    ``from_first``: these are layers 0, ``n``, ``2n``, …

    >>> every(Keys([("", {"interval": 2})]), 3, n=4, key="interval")
    ['sliding_attention', 'full_attention', 'sliding_attention']
    """
    entries = keys.entries(key)
    period = agreed([(p, SPELLINGS.get(v, v) if isinstance(v, str) else v) for p, v in entries])
    period = n if period is None else period
    if isinstance(period, bool) or not isinstance(period, int) or period < least:
        raise ValueError(f"{entries[0][0]} must be a number of layers, got {entries[0][1]!r}")
    return [full if not period or not (i + 1 - from_first) % period else others for i in range(count)]


def listed_as(
    keys: Keys, count: int, *, key: str, others: str, word: str = "full_attention",
    default: bool | Collection[int] = True, meaning: str = "the layers with attention",
) -> list[str]:  # fmt: skip
    """The key lists the numbers of the layers called ``word``; without it those of ``default``, or all, or none."""
    stated = keys.wholes(key)
    if meaning:
        keys.explain(meaning, key)
    chosen = default if stated is None else stated
    chosen = (range(count) if chosen else ()) if isinstance(chosen, bool) else chosen
    return [word if i in chosen else others for i in range(count)]


def must_say(keys: Keys, count: int) -> list[str]:
    """Refuse a config that lists no kinds: the family's code has no rule."""
    raise ValueError(f"{keys.path}layer_types is missing: the layers differ; add one word per layer")


def attends(keys: Keys, words: tuple[str, ...]) -> list[bool]:
    """Every layer with self-attention rotates."""
    return [word in ATTENTION for word in words]


def full_does_not(keys: Keys, words: tuple[str, ...]) -> list[bool]:
    """Layers with full attention do not rotate (NoPE)."""
    return [word in ATTENTION and word != "full_attention" for word in words]


def full_does_not_with_windows(keys: Keys, words: tuple[str, ...]) -> list[bool]:
    """The same, unless ``sliding_window: null`` says that there are no windows; then all rotate."""
    no_window = "sliding_window" in keys.places[0][1] and not keys.entries("sliding_window")
    return attends(keys, words) if no_window else full_does_not(keys, words)


LATENT_KEYS = ("qk_nope_head_dim", "qk_rope_head_dim")
LARGEST_HEAD = 2**12  # channels of a head


@dataclass(frozen=True)
class Head:
    """The channels of a layer's heads; ``rotated``: how many of them rotate, where latent attention says so."""

    channels: int
    rotated: int | None = None


HeadsRule = Callable[[Keys, tuple[str, ...], list[Head]], list[Head]]


def read_heads(keys: Keys, words: tuple[str, ...], head: Head, rule: HeadsRule | None) -> list[Head]:
    """The heads of each layer: ``head``, unless ``per_layer_config`` or the ``rule`` of the family says otherwise."""
    heads, single = [head] * len(words), keys.get("per_layer_config", check=is_dict)
    keys.explain("head_dim of single layers", "per_layer_config")
    if single is None:
        return heads if rule is None else rule(keys, words, heads)
    for index, settings in single.items():
        if not str(index).isdecimal() or int(index) >= len(words):
            raise ValueError(f"per_layer_config has the key {index!r}; it must be the number of a layer")
        heads[int(index)] = _of_single_layer(f"per_layer_config.{index}", settings, head)
    return heads


def _of_single_layer(path: str, settings: Any, head: Head) -> Head:
    """What ``per_layer_config`` says of one layer."""
    is_dict(path, settings)
    for name, value in settings.items():
        if value is not None and name not in LATENT_KEYS and ROPE_WORDS.search(str(name)):
            shown = name if str(name).isprintable() else repr(name)
            raise not_understood(f"{path}.{shown}", "single layers have widths of their own only")

    def size(name: str, default: int) -> int:
        value = settings.get(name)
        if value is not None:
            is_size(f"{path}.{name}", value, LARGEST_HEAD)
        return int(default if value is None else value)

    if head.rotated is None:
        return Head(size("head_dim", head.channels))
    rotated = size(LATENT_KEYS[1], head.rotated)
    return Head(size(LATENT_KEYS[0], head.channels - head.rotated) + rotated, rotated)


def wider_full(keys: Keys, words: tuple[str, ...], heads: list[Head], *, width: int) -> list[Head]:
    """Layers with full attention have ``global_head_dim`` channels, by default ``width``."""
    wide = keys.size("global_head_dim", most=LARGEST_HEAD)
    keys.explain(f"head_dim {wide} of full_attention layers", "global_head_dim")
    if wide is None:
        keys.absent("global_head_dim", f"its class's default, {width}")
    return [Head(wide or width) if word == "full_attention" else h for word, h in zip(words, heads, strict=True)]


def read_latent_head(keys: Keys, defaults: tuple[int, int], *, strict: bool) -> Head:
    """Latent attention: unrotated channels, then rotated ones; ``strict``: a ``head_dim`` must be one of the widths."""
    pairs = zip(defaults, LATENT_KEYS, strict=True)
    plain, rotated = (keys.size_or(default, name, most=LARGEST_HEAD) for default, name in pairs)
    keys.explain(f"head_dim {plain + rotated}, the last {rotated} channels rotate", *LATENT_KEYS)
    keys.size("qk_head_dim")
    agreed([("qk_nope_head_dim + qk_rope_head_dim", plain + rotated), *keys.entries("qk_head_dim")])
    keys.explain(f"head_dim {plain + rotated}", "qk_head_dim")
    if strict and (stated := keys.size("head_dim")) not in (None, rotated, plain + rotated):
        out = "remove the first: the second says how many channels rotate"
        raise contradiction(f"{keys.path}head_dim", f"{keys.path}{LATENT_KEYS[1]}", (stated, rotated), out)
    keys.explain("no effect: latent attention has its own widths", "head_dim")
    return Head(plain + rotated, rotated)


WINDOW_KEYS = {
    "sliding": ("sliding_window", "sliding_window_size", "attention_window_size"),
    "chunked": ("attention_chunk_size",),
}


def read_windows(kinds: Layers, keys: Keys, words: tuple[str, ...]) -> tuple[int | None, ...]:
    """Per layer the number of positions it sees, its own among them, or None; nothing where all see all."""
    windows = {word: _window(kinds, keys, word) for word in set(words)}
    return tuple(windows[word] for word in words) if any(windows.values()) else ()


def _window(kinds: Layers, keys: Keys, word: str) -> int | None:
    names = next((names for part, names in WINDOW_KEYS.items() if part in word), ())
    if kinds.windowed and word in ("attention", "full_attention"):
        names = WINDOW_KEYS["sliding"]
    for name in (kinds.two_sided, *names) if names else ():
        size = keys.places[0][1].get(name)
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            return size // 2 + 1 if name == kinds.two_sided else size
    return None
