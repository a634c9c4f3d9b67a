"""Scaling schemes as a config spells them: one table of keys and fields, read in both directions."""

from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

from ...rotary.scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, NTKFixed, Proportional, Scaling, YaRN
from ...support.checks import number, whole
from .keys import Keys, agreed, is_list, is_share, must, near
from .refusal import ambiguous, unread
from .text_row import TextReading

ORIGINAL = "original_max_position_embeddings"
TYPES = ("rope_type", "type")
Form = Callable[[Keys, str, TextReading, str], Any]


@dataclass(frozen=True)
class Entry:
    """A key of the dictionary, the field of the scheme that it states, and how its value is read (None: left out)."""

    key: str
    field: str
    form: Form


@dataclass(frozen=True)
class Scheme:
    """A scheme under the name it has in configs; ``scaling``: its class, None for no scaling.

    ``check`` and ``write_more`` are for keys that state more than one field: one reads them, the other writes them.
    """

    scaling: type[Scaling] | None
    entries: tuple[Entry, ...] = ()
    check: Callable[[Keys, TextReading, dict[str, Any]], None] | None = None
    write_more: Callable[[Any, dict[str, Any]], None] | None = None

    def read(self, name: str, rope: Keys, reading: TextReading) -> Scaling | None:
        values: dict[str, Any] = {}
        for entry in self.entries:
            if (value := entry.form(rope, entry.key, reading, name)) is not None:
                values[entry.field] = value
        if self.check is not None:
            self.check(rope, reading, values)
        return None if self.scaling is None else self.scaling(**values)

    def write(self, scaling: Scaling | None) -> dict[str, Any]:
        """What the dictionary must say for ``scaling`` to be read from it; defaults of the scheme are left out."""
        if scaling is None:
            return {}
        defaults = {f.name: f.default for f in fields(scaling) if f.default is not MISSING}  # type: ignore[arg-type]
        values = {entry.key: getattr(scaling, entry.field) for entry in self.entries}
        data = {e.key: values[e.key] for e in self.entries if values[e.key] != defaults.get(e.field, MISSING)}
        if self.write_more is not None:
            self.write_more(scaling, data)
        return {key: list(value) if isinstance(value, tuple) else value for key, value in data.items()}


def scheme_of(rope: Keys, reading: TextReading) -> str:
    """The scheme's name in `SCHEMES`; ``type`` and ``rope_type`` must mean the same."""
    own = reading.row.scheme_names
    names = {**{name: name for name in SCHEMES if name not in FAMILY_SCHEMES}, **own}
    entries = []
    for path, word in rope.entries(*TYPES):
        if not isinstance(word, str):
            raise ValueError(f"{path} must be the name of a scaling, got {word!r}")
        if word not in names:
            raise ValueError(
                f"{path} is {word!r}, which is none of those that the code of {reading.model_type} knows: "
                f"{', '.join(sorted(names))}{near(word, sorted(names))}"
            )
        meant = names[word]
        entries.append((path, meant if isinstance(meant, str) else meant(rope)))
        rope.sources[path] = f"scaling {word}" if entries[-1][1] != "default" else "no scaling"
    return agreed(entries) or "default"


def read_scaling(name: str, rope: Keys, reading: TextReading) -> Scaling | None:
    """The scheme ``name`` with its parameters out of ``rope``."""
    rope.explain("no effect on frequencies", "finetuned")
    return SCHEMES[name].read(name, rope, reading)


def scheme_for(scaling: Scaling | None) -> tuple[str, Scheme]:
    """The scheme that a scaling is read from, with its name.

    >>> scheme_for(Linear(4.0))[0]
    'linear'
    """
    for name, scheme in SCHEMES.items():
        if scheme.scaling is (None if scaling is None else type(scaling)):
            return name, scheme
    raise ValueError(f"{type(scaling).__name__} has no name in configs")


def _missing(rope: Keys, key: str, why: str, out: str) -> ValueError:
    return ValueError(f"{rope.path or 'config '}{key} is missing{why}; {out}")


def _optional(**bound: float) -> Form:
    def form(rope: Keys, key: str, reading: TextReading, scheme: str) -> float | None:
        value = rope.number(key, **bound)
        if value is not None:
            rope.explain(f"{scheme} {key} {value:.10g}", key)
        return value

    return form


_POSITIVE, _AT_LEAST_0 = _optional(above=0), _optional(at_least=0)


def _required(rope: Keys, key: str, reading: TextReading, scheme: str) -> float:
    value = _POSITIVE(rope, key, reading, scheme)
    if value is None:
        raise _missing(rope, key, f": {scheme} scaling needs it", "add the value of the checkpoint")
    return float(value)


def _original(rope: Keys, key: str, reading: TextReading, scheme: str) -> int:
    """``original_max_position_embeddings``, inside the dictionary or at the top."""
    at_top = [] if reading.row.kinds else reading.keys.entries(key)  # where no code looks if there are kinds of layers
    entries = [*rope.entries(key), *at_top]
    value: Any = agreed(entries, lambda p, v: number(p, v, above=0))
    if value is None:
        why = f"{scheme} scaling needs the first length of training, and max_position_embeddings may mean either"
        raise ambiguous(f"{rope.path}{key}", why)
    must(value == int(value), entries[0][0], "a whole number of positions", value)
    whole(entries[0][0], int(value))
    for keys in (rope, reading.keys):
        keys.explain(f"original_max_position {int(value)}", key)
    return int(value)


def _implicit_factor(rope: Keys, key: str, reading: TextReading, scheme: str) -> float:
    """``factor``, else the declared length over the original one; says so where the three do not go together."""
    original, declared, at = _original(rope, ORIGINAL, reading, scheme), reading.max_position, reading.length_key
    factor: float | None = _POSITIVE(rope, key, reading, scheme)
    if factor is None:
        if declared is None:
            raise _missing(rope, "factor", ", and so is max_position_embeddings", "add one of them")
        rope.absent("factor", f"max_position_embeddings / {original}")
        return declared / original
    stated = reading.keys.entries(at.removeprefix(reading.path)) if declared is not None else []
    if stated and not original <= (declared or 0) <= original * max(factor, 1) * 1.01:
        outside = f"{original} to {factor:.10g} x {original}: {scheme} goes by factor and {ORIGINAL}"
        reading.note(f"{at} is {declared}, which lies outside {outside}")
    return factor


def _truncate(rope: Keys, key: str, reading: TextReading, scheme: str) -> bool | None:
    truncate = rope.flag(key)
    if null := rope.nulls(key) if truncate is None else []:
        rope.sources[null[0]] = "yarn truncate False, as the code takes null"
        truncate = False
    if truncate is False and reading.row.kinds:
        why = "transformers does not look for it under a layer type, and rounds the ends of the ramp"
        raise unread(f"{rope.path}{key}", truncate, why)
    rope.explain(f"yarn truncate {truncate}", key)
    return truncate


def _fraction(rope: Keys, key: str, reading: TextReading, scheme: str) -> float:
    """The share of pairs that rotate: in the dictionary, else beside it, else the class's default."""
    row = reading.row
    stated = [*rope.entries(key), *reading.keys.entries(*row.shares)]
    share: float | None = rope.settle(stated, f"{scheme} {key} {{:.10g}}", is_share)
    if share is None:
        share = 1.0 if row.partial is None or reading.keys.nulls(*row.shares) else row.partial
        reading.keys.default((row.shares or (key,))[0], f"{share:g}")
    return share


def _list(rope: Keys, key: str, reading: TextReading, scheme: str) -> tuple[float, ...]:
    values = rope.get(key, check=is_list)
    if values is None:
        raise _missing(rope, key, f": {scheme} scaling needs one divisor per pair", "add it")
    rope.explain(f"{scheme} {key}, {len(values)} values", key)
    return tuple(values)


def _declared(rope: Keys, key: str, reading: TextReading, scheme: str) -> int:
    """The length that dynamic scaling grows from, which is the declared one."""
    length, top, at = reading.max_position, reading.keys, reading.length_key
    if length is None:
        raise ValueError(f"{rope.path}rope_type 'dynamic' needs max_position_embeddings; add it")
    agreed([(at, length), *rope.entries(key), *top.entries(key)])
    rope.explain("equal to max_position_embeddings, which dynamic scaling uses", key)
    meaning, use = top.sources.get(at, ""), f"original_max_position {length} of dynamic scaling"
    if use not in meaning:  # a class default is already told
        top.sources[at] = f"{meaning}; {use}" if meaning else use
    return length


def _no_factor(rope: Keys, reading: TextReading, values: dict[str, Any]) -> None:
    factor = rope.number("factor")
    if factor not in (None, 1):
        raise unread(rope.entries("factor")[0][0], factor, "there is no scaling", "name the scheme in rope_type")
    rope.explain("no effect without a scaling", "factor")


def _one_mscale(rope: Keys, reading: TextReading, values: dict[str, Any]) -> None:
    if values.get("mscale", 1) not in (0, 1) and not values.get("mscale_all_dim") and "attention" not in values:
        where, why = rope.entries("mscale")[0][0], "the model's own code and transformers read mscale alone differently"
        raise ambiguous(where.replace("mscale", "mscale_all_dim"), why, "state attention_factor instead of both", where)


def _both_mscales(rope: Keys, reading: TextReading, values: dict[str, Any]) -> None:
    """``long_mscale`` and ``short_mscale``: an attention factor on either side of the original length."""
    long, short = rope.number("long_mscale", above=0), rope.number("short_mscale", above=0)
    if (long is None) != (short is None) or (long is not None and "attention" in values):
        raise ValueError(f"{rope.path}long_mscale and short_mscale go together, without attention_factor")
    if long is not None:
        rope.explain("longrope attention factor beyond the original length", "long_mscale")
        rope.explain("longrope attention factor inside the original length", "short_mscale")
        values.update(attention=long, attention_short=short)


def _write_both_mscales(scaling: LongRoPE, data: dict[str, Any]) -> None:
    if scaling.attention_short is not None:
        data.update(long_mscale=data.pop("attention_factor"), short_mscale=scaling.attention_short)


def _alpha_alone(rope: Keys, reading: TextReading, values: dict[str, Any]) -> None:
    for name in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
        rope.number(name)
        rope.explain("no effect: alpha fixes the base", name)


def _named(form: Form, *keys: str) -> tuple[Entry, ...]:
    """Keys that are called as the fields are."""
    return tuple(Entry(key, key, form) for key in keys)


FACTOR = _named(_required, "factor")
FIRST_LENGTH = Entry(ORIGINAL, "original_max_position", _original)
STRETCH = (FIRST_LENGTH, *_named(_implicit_factor, "factor"))
ATTENTION = Entry("attention_factor", "attention", _POSITIVE)
BETAS = (*_named(_POSITIVE, "beta_fast", "beta_slow"), *_named(_AT_LEAST_0, "mscale", "mscale_all_dim"))
LONG = (*STRETCH, *_named(_list, "short_factor", "long_factor"), ATTENTION)
SCHEMES: dict[str, Scheme] = {
    "default": Scheme(None, check=_no_factor),
    "linear": Scheme(Linear, FACTOR),
    "dynamic": Scheme(DynamicNTK, (*FACTOR, Entry(ORIGINAL, "original_max_position", _declared))),
    "yarn": Scheme(YaRN, (*STRETCH, *BETAS, ATTENTION, *_named(_truncate, "truncate")), _one_mscale),
    "longrope": Scheme(LongRoPE, LONG, _both_mscales, _write_both_mscales),
    "llama3": Scheme(Llama3, (*FACTOR, *_named(_required, "low_freq_factor", "high_freq_factor"), FIRST_LENGTH)),
    "proportional": Scheme(
        Proportional, (Entry("partial_rotary_factor", "fraction", _fraction), *_named(_POSITIVE, "factor"))
    ),
    "alpha": Scheme(NTK, (Entry("alpha", "factor", _required),), _alpha_alone),
    "ntk": Scheme(NTKFixed, FACTOR),
}
FAMILY_SCHEMES = {"alpha", "ntk"}  # read only where a row says how its family spells them
