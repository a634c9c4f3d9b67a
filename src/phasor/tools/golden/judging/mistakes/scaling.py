"""Scaling that was left out, taken for another, or added."""

import dataclasses
from collections.abc import Iterator

from .....rotary.scaling import NTK, Linear, YaRN, YaRNPaper
from ..case import Case
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
    keep = scaling.attention_factor()

    def paper(case: Case) -> Case:  # ValueError for what the paper's ramp cannot have: Kimi K2's beta_fast = 1
        ramp = YaRNPaper(scaling.factor, scaling.original_max_position, scaling.beta_slow, scaling.beta_fast)
        return with_spec(scaling=ramp)(case).replace(cos_factor=keep, sin_factor=keep)

    yield Mistake(
        "scaling",
        "YaRN's ramp is linear in the number of turns, as in the paper, and must be linear in the pair index",
        paper,
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
