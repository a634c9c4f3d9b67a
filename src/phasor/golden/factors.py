"""Mistakes in the factors of a spec: scaling, width, axes."""

import dataclasses
from collections.abc import Iterator

from ..axes import Axes, InterleavedSections, Listed, Mixed, Sections
from ..scaling import NTK, Linear, YaRN, YaRNPaper
from ..spec import RotarySpec
from .imitate import Case
from .mistake import Mistake, with_fields, with_spec


def of_scaling(case: Case) -> Iterator[Mistake]:
    spec, scaling = case.spec, case.spec.scaling
    if scaling is None:
        return
    yield Mistake("scaling", f"the {scaling.name} scaling is ignored", with_spec(scaling=None))
    kept = case.cos_factor
    yield Mistake(
        "scaling",
        f"the frequencies ignore the {scaling.name} scaling, its attention factor is applied",
        lambda case: with_spec(scaling=None)(case).replace(cos_factor=kept, sin_factor=kept),
    )
    factor = getattr(scaling, "factor", None)
    for scheme in (Linear, NTK) if isinstance(factor, float | int) else ():
        if not isinstance(scaling, scheme):
            says = f"the scaling is {scheme.name} with factor {factor:g}, and must be {scaling.name}"
            yield Mistake("scaling", says, with_spec(scaling=scheme(float(factor))))  # type: ignore[arg-type]
    if isinstance(scaling, YaRN):
        yield from _yarn(scaling)
    if spec.length_dependent:
        length = scaling.trained_length or case.seq_len or 1
        other = length if case.seq_len != length else 4 * length
        says = f"the frequencies are those of sequences of {other:,} tokens, and must be those of {case.seq_len:,}"
        value = spec.attention_factor(other)
        yield Mistake("seq_len", says, with_fields(seq_len=other, cos_factor=value, sin_factor=value))


def _yarn(scaling: YaRN) -> Iterator[Mistake]:
    did = "not rounded" if scaling.truncate else "rounded outwards"
    other = dataclasses.replace(scaling, truncate=not scaling.truncate)
    says = f"the bounds of YaRN's ramp are {did} there (truncate must be {scaling.truncate})"
    yield Mistake("yarn_truncate", says, with_spec(scaling=other))
    paper = YaRNPaper(scaling.factor, scaling.original_max_position, scaling.beta_slow, scaling.beta_fast)
    keep = scaling.attention_factor()
    yield Mistake(
        "scaling",
        "YaRN's ramp is linear in the number of turns, as in the paper, and must be linear in the pair index",
        lambda case: with_spec(scaling=paper)(case).replace(cos_factor=keep, sin_factor=keep),
    )
    factor, length = scaling.factor, scaling.original_max_position
    for says, changes in (
        (f"YaRN's factor {factor:g} is applied twice", {"factor": factor**2}),
        (f"YaRN's ramp is that of a trained length of {factor * length:,.0f}, and must be that of {length:,}",
         {"original_max_position": round(factor * length)}),
    ):  # fmt: skip
        yield Mistake("scaling", says, with_spec(scaling=dataclasses.replace(scaling, **changes)))  # type: ignore[arg-type]
    usual = dataclasses.replace(scaling, attention=None, mscale=None, mscale_all_dim=None).attention_factor()
    if usual != keep:
        says = f"the attention factor is YaRN's usual {usual:.9g}, and the config says {keep:.9g}"
        yield Mistake("attention_factor", says, with_fields(cos_factor=usual, sin_factor=usual))
        both = usual * keep
        says = f"the attention factor {keep:.9g} of the config is multiplied by YaRN's usual {usual:.9g}; it is final"
        yield Mistake("attention_factor", says, with_fields(cos_factor=both, sin_factor=both))


def of_width(spec: RotarySpec) -> Iterator[Mistake]:
    width = spec.rotary_dim
    if width == spec.head_dim:
        return
    says = f"all {spec.head_dim} channels are turned, and only {width} must be"
    yield Mistake("rotary_dim", says, with_spec(rotary_dim=spec.head_dim, exponent_dim=None))
    says = f"the exponents are divided by head_dim = {spec.head_dim}, and must be by {spec.exponent_dim or width}"
    yield Mistake("rotary_dim", says, with_spec(exponent_dim=spec.head_dim))
    side, other = ("last", "first") if spec.trailing else ("first", "last")
    says = f"the {other} {width} channels are turned, and must be the {side}"
    yield Mistake("trailing", says, with_spec(trailing=not spec.trailing))


def of_axes(spec: RotarySpec) -> Iterator[Mistake]:
    count = spec.axes.count
    if count == 1 or isinstance(spec.axes, Mixed):
        return
    owner, rungs = spec.axes.axis_of_pair(spec.pairs), spec.axes.rung_of_pair(spec.pairs)
    for axis in range(count):
        says = f"all pairs follow axis {axis} of the positions"
        yield Mistake("axes", says, with_spec(axes=Listed((axis,) * spec.pairs, rungs, axes=count)))
    swapped = Listed(tuple(count - 1 - a for a in owner), rungs, axes=count)
    yield Mistake("axes", "the axes of the positions are in reverse order", with_spec(axes=swapped))
    for says, axes in _other_axes(spec, owner):
        yield Mistake("axes", says, with_spec(axes=axes))


def _other_axes(spec: RotarySpec, owner: tuple[int, ...]) -> Iterator[tuple[str, Axes]]:
    pairs, count = spec.pairs, spec.axes.count
    sizes = tuple(owner.count(a) for a in range(count))
    if not isinstance(spec.axes, Sections) or isinstance(spec.axes, InterleavedSections):
        yield "the sections stand one after the other, and must take turns", Sections(sizes)
    if not isinstance(spec.axes, InterleavedSections) and sizes[0] == max(sizes):
        yield "the sections take turns there, and must stand one after the other", InterleavedSections(sizes)
    turns = tuple(p % count for p in range(pairs))
    yield "the axes take turns pair by pair", Listed(turns, axes=count)
    if any(rung != (i, pairs) for i, rung in enumerate(spec.axes.rung_of_pair(pairs))):
        yield "one ladder of frequencies runs over all axes, and each must have its own", Listed(owner, axes=count)
