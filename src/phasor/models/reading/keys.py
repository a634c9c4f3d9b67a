"""Strict reading of JSON keys: every key is taken once, may stand in several places, and is accounted for."""

import difflib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from ...support.checks import number, whole
from .refusal import Reason, Refused, contradiction, not_understood

ROPE_WORDS = re.compile(
    r"(?<!p)rope|rotary|rotate|theta|yarn|(^|_)ntk|alibi|nope|mscale|logn|base_freq|freq_base|llama_4_scaling"
    r"|pos(ition)?(al)?_?(emb|enc|bias)|long_factor|short_factor|interpolation_factor|dual_chunk_attention",
    re.IGNORECASE,
)
ROPE_NAMES = (
    "rope_theta", "rope_scaling", "rope_parameters", "partial_rotary_factor", "rotary_dim", "rotary_pct",
    "rotary_emb_base", "original_max_position_embeddings", "rope_local_base_freq", "global_rope_theta",
    "local_rope_theta", "no_rope_layers", "no_rope_layer_interval", "rope_interleave", "qk_rope_head_dim",
    "position_embedding_type", "rope_ratio", "use_dynamic_ntk", "mrope_section", "layer_types", "kv_channels",
)  # fmt: skip
LAYER_NAMES = {  # keys without such a word that say which layers or channels rotate
    "attention_head_dim", "attn_layer_indices", "attn_type_list", "compress_ratios", "full_attn_idxs",
    "global_head_dim", "head_dim", "hybrid_layer_pattern", "kv_channels", "layer_types", "layers_block_type",
    "is_neox_style", "qk_head_dim", "swa_head_dim",
}  # fmt: skip
SWITCHES = {  # that families have on by default or off, and others do not read
    "alibi", "interleaved", "logn_attn", "mrope_interleaved", "no_rope", "rope", "rope_interleaved",
    "rope_is_neox_style", "rotary", "rotary_interleaved", "rotary_value", "use_alibi", "use_logn_attn", "use_mrope",
    "use_pos_enc", "use_rope", "use_rotary_embedding", "use_rotary_pos_emb", "use_sliding_window", "use_yarn",
}  # fmt: skip
COMMON = (*ROPE_NAMES, *sorted(LAYER_NAMES | SWITCHES))
OTHER_POSITIONS = {"max_position_embeddings", "num_position_embeddings", "position_embedding_size"}
MOST_KEYS = 2000
Check = Callable[[str, Any], None]  # of a value and the path where it stands; raises ``ValueError``
LARGEST_SIZE = 2**16  # of heads, layers or channels of a head: far beyond any model, and still quick to build


class Keys:
    """One level of a config, which may stand in several places (``rope_scaling`` and ``rope_parameters``).

    ``places`` are ``(path, dictionary)``; ``sources`` collects what each key became; a key counts as used once read.
    ``owner``: the class whose defaults fill what the config leaves out. Raises ``ValueError`` for a key that is no
    word, which JSON cannot hold but a dictionary can.
    """

    def __init__(
        self, places: Iterable[tuple[str, dict[str, Any]]], sources: dict[str, str] | None = None, owner: str = ""
    ) -> None:
        self.places = list(places)
        for path, data in self.places:
            where = path.rstrip(".") or "config"
            if len(data) > MOST_KEYS:
                raise Refused(f"{where} has {len(data)} keys; a config has at most {MOST_KEYS}", Reason.BEYOND)
            for name in data:
                if not isinstance(name, str) or not name.isprintable():
                    raise ValueError(f"{where} has the key {name!r}; keys must be plain words")
        self.sources = {} if sources is None else sources
        self.owner = owner
        self.used: set[str] = set()

    @property
    def path(self) -> str:
        """What stands before a key in messages."""
        return self.places[0][0] if self.places else ""

    def entries(self, *names: str) -> list[tuple[str, Any]]:
        """All places where one of the names has a value other than null, as ``(path, value)``; marks them as used."""
        self.used.update(names)
        return [(p + n, d[n]) for n in names for p, d in self.places if d.get(n) is not None]

    def nulls(self, *names: str) -> list[str]:
        """The paths where one of the names is null."""
        return [path + name for name in names for path, data in self.places if name in data and data[name] is None]

    def get(self, *names: str, check: Check | None = None) -> Any:
        """The value under these names (synonyms), or None; all that are present must agree."""
        return agreed(self.entries(*names), check)

    def number(self, *names: str, above: float | None = None, at_least: float | None = None) -> float | None:
        return self.get(*names, check=lambda p, v: number(p, v, above=above, at_least=at_least))

    def whole(self, *names: str, at_least: int = 1) -> int | None:
        return self.get(*names, check=lambda p, v: whole(p, v, at_least=at_least))

    def size(self, *names: str, most: int = LARGEST_SIZE, at_least: int = 1) -> int | None:
        """A number of heads, layers or channels, at most ``most``."""
        return self.get(*names, check=lambda p, v: is_size(p, v, most, at_least))

    def size_or(self, default: int, *names: str, most: int = LARGEST_SIZE, at_least: int = 1) -> int:
        """A size, or the default of the class."""
        value = self.size(*names, most=most, at_least=at_least)
        if value is None:
            self.default(names[0], str(default))
        return default if value is None else value

    def length(self, *names: str) -> int | None:
        """A number of positions, which some configs write as a float."""
        value = self.get(*names, check=is_length)
        return None if value is None else int(value)

    def flag(self, *names: str) -> bool | None:
        return self.get(*names, check=is_flag)

    def word(self, *names: str) -> str | None:
        return self.get(*names, check=is_word)

    def wholes(self, name: str, at_least: int = 0) -> list[int] | None:
        """A list of integers, or None."""
        values: list[int] | None = self.get(name, check=is_list)
        for i, value in enumerate(values or ()):
            whole(f"{self.entries(name)[0][0]}[{i}]", value, at_least=at_least)
        return values

    def inside(self, name: str, owner: str = "") -> "Keys":
        """The keys of the object under a name; of an empty one where there is none."""
        return Keys([(f"{self.path}{name}.", self.get(name, check=is_dict) or {})], self.sources, owner)

    def explain(self, text: str, *names: str) -> None:
        """Record what these keys mean for the encoding, wherever they stand."""
        for path, _ in self.entries(*names):
            self.sources[path] = text

    def settle(self, entries: list[tuple[str, Any]], told: str, check: Check | None = None) -> Any:
        """The one value that these places hold, on record as what is ``told`` of it; None for no place."""
        value = agreed(entries, check)
        self.sources.update((path, told.format(value)) for path, _ in entries)
        return value

    def absent(self, name: str, meaning: str) -> None:
        """Record what it means that the config does not have a key."""
        self.sources[self.path + name] = f"not in config: {meaning}"

    def default(self, name: str, meaning: str) -> None:
        """Record that the config leaves this to its class."""
        self.absent(name, f"{self.owner}'s default, {meaning}")

    def unused(self) -> Iterator[tuple[str, str, Any]]:
        """``(path, name, value)`` of the keys that nobody asked for."""
        for path, data in self.places:
            yield from ((path, name, value) for name, value in data.items() if name not in self.used)

    def refuse_unused(self, owner: str) -> None:
        """Raise ``ValueError`` for the first key that nobody asked for."""
        known = sorted(self.used)
        for path, name, value in self.unused():
            if slip_of(name, known) or not is_neutral(value):
                raise not_understood(path + name, f"{owner} uses {', '.join(known)} here{near(name, known)}")
            if value is not None:
                self.sources[path + name] = f"no effect: {owner} does not use it"


@dataclass(frozen=True)
class Reading:
    """A config while it is being read, as the rules of a row see it; ``notes``: what its reader should hear.

    ``length_key``: the key that says ``max_position``, or would.
    """

    model_type: str
    keys: Keys
    max_position: int | None = None
    length_key: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def path(self) -> str:
        return self.keys.path

    @property
    def sources(self) -> dict[str, str]:
        return self.keys.sources

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def agreed(entries: list[tuple[str, Any]], check: Check | None = None) -> Any:
    """The one value that all places hold, or None for no place; raises if two places disagree."""
    for path, value in entries:
        if check is not None:
            check(path, value)
    for path, value in entries[1:]:
        if value != entries[0][1]:
            out = "keep the one that the checkpoint was trained with"
            raise contradiction(entries[0][0], path, (entries[0][1], value), out)
    return entries[0][1] if entries else None


def must(holds: bool, path: str, what: str, value: Any) -> None:
    if not holds:
        raise ValueError(f"{path} must be {what}, got {value!r}")


def _kind(what: str, *kinds: type) -> Check:
    return lambda path, value: must(isinstance(value, kinds), path, what, value)


is_dict, is_list = _kind("an object of keys", dict), _kind("a list", list, tuple)
is_flag, is_word = _kind("true or false", bool), _kind("a word", str)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_base(path: str, value: Any) -> None:
    fits = is_number(value) and 1 < value < float("inf")
    must(fits, path, "a finite number above 1 (the base of the frequencies)", value)


def is_share(path: str, value: Any, most: float = 1.0) -> None:
    fits = is_number(value) and 0 < value <= most
    must(fits, path, f"a share of the head above 0 and at most {most:g}", value)


def is_length(path: str, value: Any) -> None:
    whole(path, int(value) if isinstance(value, float) and value.is_integer() else value)


def is_size(path: str, value: Any, most: int = LARGEST_SIZE, at_least: int = 1) -> None:
    """Raise `Refused` unless ``value`` is a number of heads, layers or channels that some model may have.

    >>> is_size("head_dim", 2**21)
    Traceback (most recent call last):
    phasor.models.reading.refusal.Refused: head_dim must be at most 65536, got 2097152
    """
    whole(path, value, at_least=at_least)
    if value > most:
        raise Refused(f"{path} must be at most {most}, got {value!r}", Reason.BEYOND, path)


LONGEST = 100  # characters of a key that is compared with the known ones, all of which are shorter


def near(name: str, known: Iterable[str]) -> str:
    """``"; did you mean …?"`` if some known name looks alike, else nothing.

    >>> near("rope_thata", ["rope_theta", "head_dim"])
    '; did you mean rope_theta?'
    """
    close = difflib.get_close_matches(name[:LONGEST], list(known), n=1, cutoff=0.75)
    return f"; did you mean {close[0]}?" if close and close[0] != name else ""


def about_positions(name: str) -> bool:
    """Whether a key speaks of the rotation, by its words or because it is a slip of a known name.

    >>> [about_positions(n) for n in ("rope_theta", "roep_scaling", "property", "hidden_size", "mlp_layer_types")]
    [True, True, False, False, False]
    """
    if name in OTHER_POSITIONS:
        return False
    return bool(ROPE_WORDS.search(name)) or name in LAYER_NAMES or is_slip(name)


def is_slip(name: str) -> bool:
    """Whether a key is nearly, but not quite, one of the common names.

    >>> [is_slip(n) for n in ("use_rop", "roep_scaling", "use_rope", "use_cache")]
    [True, True, False, False]
    """
    return bool(_slip_of_common(name))


@lru_cache(maxsize=4096)  # most configs have the same keys
def _slip_of_common(name: str) -> str:
    if name in COMMON:
        return ""
    close = difflib.get_close_matches(name[:LONGEST].lower(), ROPE_NAMES, n=1, cutoff=0.87)
    return close[0] if close else slip_of(name, COMMON)


def slip_of(name: str, known: Iterable[str]) -> str:
    """The known name from which a key differs by one letter (left out, added, exchanged), by case or by hyphens.

    Nothing for a known name, and for short ones, where a letter makes another word (``n_head``, ``d_head``).

    >>> [slip_of(name, ["beta_fast", "beta_slow"]) for name in ("beta_slwo", "Beta-Fast", "beta")]
    ['beta_slow', 'beta_fast', '']
    """
    known = tuple(known)
    if name in known or len(name) > LONGEST:
        return ""
    word = _plain(name)
    close = [
        (form != word, other)
        for form, other in _forms(known)
        if abs(len(form) - len(word)) < 2 and _one_letter(word, form)
    ]
    return min(close)[1] if close else ""


@lru_cache(maxsize=64)
def _forms(known: tuple[str, ...]) -> list[tuple[str, str]]:
    return [(_plain(name), name) for name in known if len(name) > 3]


def _plain(name: str) -> str:
    return name.lower().replace("-", "_").strip("_ ")


def _one_letter(a: str, b: str) -> bool:
    """Whether two words are equal, or differ by one letter or by two neighbours exchanged."""
    start = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
    a, b = a[start:], b[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])


def is_neutral(value: Any) -> bool:
    """Whether a value asks for nothing.

    >>> [is_neutral(v) for v in (None, False, 1.0, "default", [], True, 0.5)]
    [True, True, True, True, True, False, False]
    """
    if isinstance(value, bool) or value is None:
        return not value
    return value in ("", "default", [], {}, ()) or (isinstance(value, int | float) and value == 1)
