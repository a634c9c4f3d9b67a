"""The answer: the simplest fields that give what was seen, and what they leave open."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from ...rotary.axes import Axes, OneAxis
from ...rotary.scaling import Linear, LongRoPE
from ...rotary.spec import RotarySpec
from ...support.checks import number
from ...support.schemes import brief
from .candidates import candidates
from .sight import Seen, Sight, float32
from .stated import Stated


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
        return RotarySpec(**{"head_dim": 2 * self.pairs, "angles": "float32", **self.fields, **others})


def named(
    frequencies: Sequence[float],
    *,
    factor: float = 1.0,
    numbers: Mapping[str, Any] | None = None,
    exact: bool = True,
    by_length: Mapping[int, Seen] | None = None,
    axes: Axes = OneAxis(),  # noqa: B008 (frozen)
) -> Named:
    """The simplest fields of a `RotarySpec` that give ``frequencies`` and ``factor``, and what they leave open.

    ``frequencies`` has one value per pair, radians per position, seen in a sequence inside the trained length, and
    ``by_length`` what was seen, frequencies and factor, in fresh sequences of other lengths. ``exact``: these are the
    model's own float32 values; otherwise they were measured. ``numbers`` is the model's config: any number in it may
    be the base, and a scaling has the parameters that stand under their usual keys. ``axes`` say on which ladder each
    pair stands.

    Raises ``ValueError`` for frequencies that are no finite numbers or, where they are exact, no float32 values.

    >>> named([1.0, 0.1], exact=False).fields
    {'base': 100.0}
    >>> answer = named([0.5, 0.0625], numbers={"rope_theta": 64, "rope_scaling": {"factor": 2.0}})
    >>> answer.fields, answer.open
    ({'base': 64.0, 'scaling': Linear(factor=2.0)}, ('only sequences inside the trained length were seen',))
    """
    seen: dict[int | None, Seen] = {None: (frequencies, factor)}
    seen.update((by_length or {}).items())
    _check(sight := Sight(seen, axes, exact))
    stated = Stated(numbers or {})
    answer = _best(sight, stated)
    turning = max((p + 1 for p, f in enumerate(frequencies) if f), default=0)
    if not 0 < turning < len(frequencies) or not isinstance(axes, OneAxis):
        return answer
    # The last pairs stand still: they pass, behind a whole ladder, unless the answer for all explains it as well.
    fewer = _best(Sight({n: (values[:turning], m) for n, (values, m) in sight.at.items()}, axes, exact), stated)
    return max(answer, fewer, key=lambda a: (a.fields.get("base") in stated.bases, "base" in a.fields))


def _check(sight: Sight) -> None:
    pairs = max(1, len(sight.at[None][0]))
    for length, (frequencies, factor) in sight.at.items():
        where, count = "" if length is None else f"by_length[{length}]: ", len(frequencies)
        if count != pairs:
            raise ValueError(f"{where}frequencies must have one value per pair, {pairs} here, got {count}")
        for i, value in enumerate(frequencies):
            number(f"{where}frequencies[{i}]", value)
            if sight.exact and float32(value) != value:
                rule = f"must be a float32 value where they are exact, got {value!r}; measured ones: exact=False"
                raise ValueError(f"{where}frequencies[{i}] {rule}")
        number(f"{where}factor", factor, above=0)


def _best(sight: Sight, stated: Stated) -> Named:
    """The first candidate that explains everything, else what explains most."""
    found: dict[tuple[bool, bool] | None, dict[str, Any]] = {}  # by whether bits and factor are right
    by_exp = ({**one, "angles": "float32_exp"} for one in candidates(sight, stated) if "scaling" not in one)
    for fields in chain(candidates(sight, stated), by_exp):
        found.setdefault(sight.judge(fields), fields)
        if (True, True) in found:
            break
    name = found.get((True, True)) or found.get((True, False))
    near = None if name else found.get((False, True)) or found.get((False, False))
    frequencies, factor = sight.at[None]
    fields = name or {"frequencies": tuple(frequencies)}
    told, look_at = _open(sight, stated, fields)
    if near:
        scaling = f", {brief(near['scaling'])}" if "scaling" in near else ""
        told.insert(0, f"the frequencies are near those of base {near['base']:.10g}{scaling}, but have other bits")
    elif name is None:
        told.insert(0, "no base and no scaling known here give these frequencies")
    own = fields["scaling"].attention_factor() if "scaling" in fields else 1.0
    left = 1.0 if (True, True) in found else factor / own
    if left != 1:
        told.append(f"a factor of {left:.9g} on cos and sin, which no scaling explains")
    fields = fields if isinstance(sight.axes, OneAxis) else {**fields, "axes": sight.axes}
    bits = sight.exact and ((True, True) in found or not sight.changed)
    return Named(fields, len(frequencies), left, bits, near, tuple(told), tuple(look_at))


def _open(sight: Sight, stated: Stated, fields: Mapping[str, Any]) -> tuple[list[str], list[int]]:
    """What nobody saw: other lengths, and what the config has that would show there alone."""
    told = ["only sequences inside the trained length were seen"]
    if longest := max((n for n in sight.at if n), default=0):
        told = [f"no sequence of more than {longest} tokens was seen"]
    scaling, look_at = fields.get("scaling"), []
    if isinstance(scaling, Linear) and not sight.exact:
        told.append(f"positions times {1 / scaling.factor:.9g} would be the same but for the last bits")
    if isinstance(scaling, LongRoPE):
        start = scaling.original_max_position
        if look_at := [n for n in (start, start + 1) if n not in sight.at]:
            told.append(f"that long_factor begins after {start} tokens is what the config says; it was not seen there")
    elif "frequencies" in fields:
        told += [f"at {n} tokens it is another rotation, which nothing known here explains" for n in sight.changed[:1]]
    elif not sight.changed:
        for other in stated.growing():
            if sight.judge({**fields, "scaling": other}) == (True, True):
                start = max(other.trained_length or 0, longest)
                told.append(f"{brief(other)} would look the same up to {start} tokens")
                look_at.append(2 * start)  # well beyond the trained length, so that no two are the same there
    return told, look_at
