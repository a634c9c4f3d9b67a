"""The answer: the simplest fields that give what was seen, and what they leave open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...rotary.axes import Axes, OneAxis
from ...rotary.scaling import Linear, LongRoPE, Scaling
from ...rotary.spec import RotarySpec
from ...support.checks import number
from ...support.schemes import brief
from .candidates import candidates
from .config_numbers import Numbers
from .lengths import dynamic_stated, stepped_stated
from .lists import longrope
from .sight import Sight, float32


@dataclass(frozen=True)
class Named:
    """What was seen, named.

    ``fields`` are the fields of a `RotarySpec`: ``base``, ``scaling`` and so on, or explicit ``frequencies``; they
    speak of the first ``pairs`` pairs, behind which all pass. ``factor`` is what cos and sin have to be multiplied by
    beside the scaling's own attention factor, 1 where that explains it. ``exact``: the bits are those that were seen,
    at all lengths. ``near`` are the fields of the nearest name where no name has the bits. ``open`` says in sentences
    what nobody saw, and ``look_at`` the lengths at which one would see it.
    """

    fields: dict[str, Any]
    pairs: int
    factor: float = 1.0
    exact: bool = True
    near: dict[str, Any] | None = None
    open: tuple[str, ...] = ()
    look_at: tuple[int, ...] = ()

    def spec(self, **others: Any) -> RotarySpec:
        """A spec with these fields, float32 angles and ``others``; its heads are as wide as the pairs by default."""
        fields: dict[str, Any] = {"head_dim": 2 * self.pairs, "angles": "float32"} | self.fields | others
        return RotarySpec(**fields)


def named(
    frequencies: Sequence[float],
    *,
    factor: float = 1.0,
    numbers: Mapping[str, Any] | None = None,
    exact: bool = True,
    by_length: Mapping[int, tuple[Sequence[float], float]] | None = None,
    axes: Axes = OneAxis(),  # noqa: B008 (frozen)
) -> Named:
    """The simplest fields of a `RotarySpec` that give ``frequencies`` and ``factor``, and what they leave open.

    ``frequencies`` has one value per pair, radians per position, seen in a sequence inside the trained length, and
    ``by_length`` what was seen, frequencies and factor, in fresh sequences of other lengths. ``exact``: these are the
    model's own float32 values; otherwise they were measured. ``numbers`` is the model's config: any number in it may
    turn out to be a parameter, whatever its key is called. ``axes`` say on which ladder each pair stands.

    Raises ``ValueError`` for frequencies that are no finite numbers or, where they are exact, no float32 values.

    >>> named([1.0, 0.1], exact=False).fields
    {'base': 100.0}
    >>> answer = named([0.5, 0.0625], numbers={"rope_theta": 64, "rope_scaling": {"factor": 2.0}})
    >>> answer.fields, answer.open
    ({'base': 64.0, 'scaling': Linear(factor=2.0)}, ('only sequences inside the trained length were seen',))
    """
    seen: dict[int | None, tuple[Sequence[float], float]] = {None: (frequencies, factor)}
    seen.update((by_length or {}).items())
    for length, (values, magnitude) in seen.items():
        _check(values, magnitude, len(frequencies), exact, "" if length is None else f"by_length[{length}]: ")
    sight = Sight({at: (tuple(map(float, fs)), float(m)) for at, (fs, m) in seen.items()}, axes, exact)
    config = Numbers(numbers or {})
    answer = _best(sight, config)
    if sight.turning < len(frequencies) and isinstance(axes, OneAxis):
        return _or_fewer_pairs(answer, sight, config)
    return answer


def _or_fewer_pairs(answer: Named, sight: Sight, config: Numbers) -> Named:
    """Where the last pairs stand still: that they pass, behind a whole ladder, unless ``answer`` explains it better."""
    if answer.fields.get("base") in config.bases or not sight.turning:
        return answer
    fewer = _best(sight.first(sight.turning), config)
    if "frequencies" in answer.fields:
        return answer if "frequencies" in fewer.fields else fewer
    return fewer if fewer.fields.get("base") in config.bases else answer


def _check(frequencies: Sequence[float], factor: float, pairs: int, exact: bool, where: str) -> None:
    if len(frequencies) != pairs or not pairs:
        raise ValueError(f"{where}frequencies must have one value per pair, {pairs or 1} here, got {len(frequencies)}")
    for i, value in enumerate(frequencies):
        number(f"{where}frequencies[{i}]", value)
        if exact and float32(value) != value:
            raise ValueError(
                f"{where}frequencies[{i}] must be a float32 value where they are exact, got {value!r}; "
                "measured ones: exact=False"
            )
    number(f"{where}factor", factor, above=0)


def _best(sight: Sight, config: Numbers) -> Named:
    """The first candidate that explains everything, else what explains most."""
    ranked: dict[tuple[bool, bool], dict[str, Any]] = {}
    for fields in candidates(sight, config):
        near, bits, factor = sight.judge(fields)
        if near:
            ranked.setdefault((bits, factor), fields)
        if bits and factor:
            break
    return _told(sight, config, ranked)


def _told(sight: Sight, config: Numbers, ranked: dict[tuple[bool, bool], dict[str, Any]]) -> Named:
    """The answer in words: the best of the ranks, and what is open about it."""
    pairs, (frequencies, factor) = len(sight.at[None][0]), sight.at[None]
    fields = ranked.get((True, True)) or ranked.get((True, False))
    near = ranked.get((False, True)) or ranked.get((False, False))
    told, look_at = _open(sight, config, fields)
    if fields is None:
        told = [_nameless(near), *told]
        fields = {"frequencies": frequencies}
    if not isinstance(sight.axes, OneAxis):
        fields = fields | {"axes": sight.axes}
    left = 1.0 if (True, True) in ranked else factor
    if (True, True) not in ranked and (True, False) in ranked and (own := _own_factor(fields)) != 1:
        left = factor / own
    if left != 1:
        told.append(f"a factor of {left:.9g} on cos and sin, which no scaling explains")
    bits = sight.exact and ((True, True) in ranked or not sight.changed)
    return Named(fields, pairs, left, bits, None if "frequencies" not in fields else near, tuple(told), look_at)


def _own_factor(fields: Mapping[str, Any]) -> float:
    scaling: Scaling | None = fields.get("scaling")
    return 1.0 if scaling is None else scaling.attention_factor()


def _nameless(near: Mapping[str, Any] | None) -> str:
    if near is None:
        return "no base and no scaling known here give these frequencies"
    return f"the frequencies are near those of {_say(near)}, but have other bits"


def _say(fields: Mapping[str, Any]) -> str:
    scaling = fields.get("scaling")
    words = [f"base {fields['base']:.10g}"]
    words += [f"exponents over {fields['exponent_dim']}"] if "exponent_dim" in fields else []
    words += [brief(scaling)] if scaling is not None else []
    words += [f"positions times {fields['position_scale']:.10g}"] if "position_scale" in fields else []
    return ", ".join(words)


def _open(sight: Sight, config: Numbers, fields: dict[str, Any] | None) -> tuple[list[str], tuple[int, ...]]:
    """What nobody saw: other lengths, and what the config has that would show there alone."""
    scaling = None if fields is None else fields.get("scaling")
    longest = max(sight.lengths, default=0)
    told = [f"no sequence of more than {longest} tokens was seen"]
    if not longest:
        told = ["only sequences inside the trained length were seen"]
    look_at: list[int] = []
    if isinstance(scaling, Linear) and not sight.exact:
        told.append(f"positions times {1 / scaling.factor:.9g} would be the same but for the last bits")
    if isinstance(scaling, LongRoPE):
        _open_longrope(scaling, sight, told, look_at)
    if fields is None and sight.changed:
        told.append(f"at {sight.changed[0]} tokens it is another rotation, which nothing known here explains")
    if fields is not None and not sight.changed and not isinstance(scaling, LongRoPE):
        for other in _would_show_later(sight, config, fields):
            start = other.trained_length or 0
            told.append(f"{brief(other)} would look the same up to {max(start, longest)} tokens")
            # well beyond the trained length, so that no two of them are the same there
            look_at.append(2 * max(start, longest))
    return told, tuple(dict.fromkeys(look_at))


def _open_longrope(scaling: LongRoPE, sight: Sight, told: list[str], look_at: list[int]) -> None:
    start = scaling.original_max_position
    inside = max((n for n in sight.lengths if n not in sight.changed), default=0)
    if not sight.changed:
        told.append(f"long_factor, beyond {start} tokens, is what the config says; it was not seen")
        look_at.append(start + 1)
    elif (inside, min(sight.changed)) != (start, start + 1):
        told.append(f"that it changes at {start} tokens is what the config says: nothing was seen close to it")
        look_at += [n for n in (start, start + 1) if n not in sight.at]


def _would_show_later(sight: Sight, config: Numbers, fields: dict[str, Any]) -> Iterator[Scaling]:
    """Scalings of the config that are the same at all lengths seen and another one beyond: only those it speaks of."""
    makers = {"dynamic": dynamic_stated, "stepped_ntk": stepped_stated, "longrope": longrope}
    for word, maker in makers.items():
        if word not in config.words and not (word == "longrope" and config.lists):
            continue
        for scaling in maker(sight, config, fields["base"]):
            later = {k: v for k, v in fields.items() if k != "scaling"} | {"scaling": scaling}
            if sight.judge(later)[1:] == (True, True):
                yield scaling
