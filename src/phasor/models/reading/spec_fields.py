"""The fields of one spec: base and rotated width, each from the keys that the family's code reads, or from its row."""

from dataclasses import dataclass, field
from typing import Any

from .heads import Head
from .keys import Keys, agreed
from .text_row import Facts, Rope

EXCHANGED = "rope_theta"  # how rope parameters call the base, in all families


@dataclass(frozen=True)
class Reader:
    """What is known while one config is being read; ``notes``: what its reader should hear about."""

    model_type: str
    facts: Facts
    keys: Keys
    path: str
    max_position: int | None
    length_key: str  # the key that says max_position, or would
    notes: list[str] = field(default_factory=list)

    @property
    def sources(self) -> dict[str, str]:
        return self.keys.sources

    def default(self, key: str, meaning: str) -> None:
        """Record that the config leaves this to its class."""
        self.sources[f"{self.path}{key}"] = f"not in config: {self.facts.config}'s default, {meaning}"

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


@dataclass(frozen=True)
class Width:
    rotary_dim: int
    head_dim: int
    trailing: bool
    interleaved: bool
    permuted: bool = False
    exponent_dim: int | None = None


@dataclass(frozen=True)
class OwnBase:
    """What a config lists for one single layer: its base (0: it does not rotate) and its share of channels."""

    base: float
    share: float = 1.0


def read_base(reader: Reader, parameters: Rope, rope: Keys, own: OwnBase | None) -> float:
    """The base, inside the rope parameters or at the top under one of its names."""
    top = reader.keys
    if own is not None:
        for keys in (rope, top):
            if isinstance(keys.get(EXCHANGED), int | float):
                keys.explain("no effect: every layer has its own base", EXCHANGED)
        return own.base
    first = rope.places[0][0].removeprefix(reader.path).partition(".")[0] if rope.places else ""
    stated = first in reader.facts.dicts  # and not the class's default
    default = parameters.base if parameters.bare is None or not stated else parameters.bare
    found = [*rope.found(EXCHANGED), *top.found(*parameters.top)]
    if parameters.more and not stated and not reader.facts.kinds:  # which come with a base of their own
        found += [(f"{reader.facts.config}'s default rope_theta", parameters.base)]
    base = agreed(found, _above_one)
    if base is None and default is None:
        raise ValueError(f"{reader.path}rope_theta is missing, and {reader.model_type} has no base of its own; add it")
    if base is None:
        base = default
        assert base is not None
        reader.default((parameters.top or (EXCHANGED,))[0], f"base {base:.10g}")
        if stated:
            where = rope.places[0][0].rstrip(".")
            reader.note(f"{where} states no rope_theta: base {base:.10g} is assumed, {reader.facts.config}'s default")
    for path, _ in found:
        reader.sources[path] = f"base {base:.10g}"
    if (key := reader.facts.base_factor) and (ratio := top.number(key, above=0)) is not None:
        base *= ratio
        top.explain(f"base times {ratio:.10g}: {base:.10g}", key)
    return float(base)


def _above_one(path: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 < value < float("inf"):
        raise ValueError(f"{path} must be a finite number above 1 (the base of the frequencies), got {value!r}")


def read_width(reader: Reader, scheme: str, rope: Keys, head: Head, own: OwnBase | None) -> Width:
    """Which channels turn: a share or a number of channels, under the names that the family's code reads."""
    facts, keys, head_dim = reader.facts, reader.keys, head.channels
    if head.turned is not None:
        return _latent_width(reader, scheme, rope, head_dim, head.turned)
    shares = keys.found(*facts.shares) if facts.partial is not None else []
    if scheme != "proportional":  # there it is the share of pairs that turn, inside the full width
        shares = [*rope.found("partial_rotary_factor"), *shares]
    for path, value in shares:
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1:
            raise ValueError(f"{path} must be a share of the head above 0 and at most 1, got {value!r}")
    stated = [(path, int(head_dim * share)) for path, share in shares]
    if own is not None and own.share != 1:
        stated.append(("partial_rotary_factors", int(head_dim * own.share)))
    if keys.whole(*facts.widths, at_least=2) is not None:
        stated += keys.found(*facts.widths)
    width = agreed(stated)
    if width is None:
        width = head_dim if scheme == "proportional" or own is not None else _default_width(reader, head_dim)
    if facts.partial is None and width != head_dim:
        raise ValueError(
            f"{stated[0][0]} makes {width} of {head_dim} channels turn, but the code of {reader.model_type} turns all "
            "of them; remove the key, or describe the encoding with RotarySpec yourself"
        )
    for path, _ in stated:
        reader.sources[path] = f"rotary_dim {width}"
    if width % 2 and facts.odd and scheme != "yarn":  # whose ramp has a value too few, in the code as well
        return Width(width + 1, head_dim, facts.trailing, facts.interleaved, exponent_dim=width)
    return Width(width, head_dim, facts.trailing, facts.interleaved, facts.permuted)


def _default_width(reader: Reader, head_dim: int) -> int:
    facts = reader.facts
    if facts.width is not None:
        reader.default(facts.widths[0], str(facts.width))
        return facts.width
    share = facts.partial
    if share not in (None, 1.0):
        reader.default((facts.shares or ("partial_rotary_factor",))[0], f"{share}")
    return int(head_dim * (1.0 if share is None else share))


def _latent_width(reader: Reader, scheme: str, rope: Keys, head_dim: int, width: int) -> Width:
    """Latent attention: the last ``qk_rope_head_dim`` channels of ``qk_nope_head_dim + qk_rope_head_dim`` turn."""
    facts, keys = reader.facts, reader.keys
    for level in (rope, keys) if scheme != "proportional" else (keys,):
        for path, share in level.found("partial_rotary_factor"):
            # the functions of the scalings take a share of these channels, which the attention does not expect
            allowed = (1, width / head_dim) if facts.interleave_key else (share,) if scheme == "default" else (1,)
            if isinstance(share, bool) or share not in allowed:
                raise ValueError(f"{path} is {share!r}, but qk_rope_head_dim says {width} channels turn; remove it")
        level.explain(f"no effect: qk_rope_head_dim says {width}", "partial_rotary_factor")
    interleaved = facts.interleaved
    if facts.interleave_key and (flag := keys.flag("rope_interleave")) is not None:
        interleaved = flag
        keys.explain("interleaved pairs" if flag else "halves", "rope_interleave")
    return Width(width, head_dim, True, interleaved, permuted=interleaved and facts.permuted)
