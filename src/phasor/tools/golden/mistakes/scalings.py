"""Frequencies that are scaled otherwise: not at all, by another scheme or parameter, or as those of other layers."""

import copy
import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from ....rotary.scaling import NTK, AtLength, Linear, Llama3, Scaling, YaRN, YaRNPaper
from ..case import Change, Mistake, RotationCase, Row, with_factor, with_fields, with_spec
from ..layer_kinds import Kind

NEAR = (0.5, 2.0, 4.0, 0.25, 8.0)  # times what a bound, or a length, must be
LENGTHS = tuple(2**n for n in range(10, 21))


def of_kinds(kind: Kind, others: Iterable[Kind]) -> Iterator[Mistake]:
    """One for each of the ``others`` that rotates as many pairs in other layers; keys that move, as others move."""
    own = kind.exact
    for other in others:
        spec = other.exact
        if own is None or spec is None or other.moved != kind.moved or set(other.layers) & set(kind.layers):
            continue
        if spec.pairs == own.pairs:
            factor = spec.attention_factor(other.seq_len)
            text = f"the frequencies are those of the layers {other.name}, and must be those of {kind.name}"
            change = with_fields(frequencies=spec.inv_freq(other.seq_len), cos_factor=factor, sin_factor=factor)
            yield Mistake("layers", text, change)


def of_scaling(case: RotationCase) -> Iterator[Row]:
    spec, scaling = case.spec, case.spec.scaling
    if scaling is None:
        return
    name = scaling.scaling.name if isinstance(scaling, AtLength) else scaling.name
    yield "scaling", f"the {name} scaling is ignored", with_spec(scaling=None)
    if isinstance(scaling, AtLength):
        yield from _of_other_lengths(scaling, case)
        return
    text = f"the frequencies ignore the {name} scaling, its attention factor is applied"
    yield "scaling", text, _frequencies_of(None, case)
    factor = getattr(scaling, "factor", None)
    for scheme in (Linear, NTK) if isinstance(factor, float | int) else ():
        if not isinstance(scaling, scheme):
            text = f"the scaling is {scheme.name} with factor {factor:g}, and must be {name}"
            yield "scaling", text, with_spec(scaling=scheme(float(factor)))  # type: ignore[arg-type]
    if isinstance(scaling, Linear):
        text = f"the factor of the linear scaling is {scaling.factor / 2:g}, and must be {scaling.factor:g}"
        yield "scaling", text, with_spec(scaling=Linear(scaling.factor / 2))  # known, for it is as rotated twice
        text = f"frequencies are multiplied by the factor {scaling.factor:g}, and must be divided by it"
        yield "scaling", text, with_spec(scaling=Linear(1 / scaling.factor))
    if isinstance(scaling, YaRN):
        yield from _yarn(scaling, case)
    if spec.length_dependent:
        length = scaling.trained_length or case.seq_len or 1
        other = length if case.seq_len != length else 4 * length
        value = spec.attention_factor(other)
        yield _length(other, case.seq_len, with_fields(seq_len=other, cos_factor=value, sin_factor=value))
    if isinstance(scaling, Llama3 | YaRN):
        yield from _blends(case, scaling)


def _frequencies_of(scaling: Scaling | None, case: RotationCase) -> Change:
    """Those of another scaling, with the attention factor of the case."""
    return lambda other: with_factor(case.cos_factor)(with_spec(scaling=scaling)(other))


def _length(there: int, here: int | None, change: Change) -> Row:
    text = f"the frequencies are those of sequences of {there:,} tokens, and must be those of {here:,}"
    return "seq_len", text, change


def _of_other_lengths(scaling: AtLength, case: RotationCase) -> Iterator[Row]:
    for length in () if scaling.seq_len is None else (scaling.seq_len // 4, scaling.seq_len * 4):
        other = dataclasses.replace(scaling, seq_len=max(length, 1))
        yield _length(length, scaling.seq_len, _frequencies_of(other, case))


def _yarn(scaling: YaRN, case: RotationCase) -> Iterator[Row]:
    did = "not rounded" if scaling.truncate else "rounded outwards"
    other = dataclasses.replace(scaling, truncate=not scaling.truncate)
    text = f"the bounds of YaRN's ramp are {did} there (truncate must be {scaling.truncate})"
    yield "yarn_truncate", text, with_spec(scaling=other)
    factor, length, keep = scaling.factor, scaling.original_max_position, scaling.attention_factor()

    def paper(case: RotationCase) -> RotationCase:  # ValueError for what its ramp cannot have: Kimi K2's beta_fast = 1
        return _frequencies_of(YaRNPaper(factor, length, scaling.beta_slow, scaling.beta_fast), case)(case)

    text = "YaRN's ramp is linear in the number of turns, as in the paper, and must be linear in the pair index"
    yield "scaling", text, paper
    twice = dataclasses.replace(scaling, factor=factor**2)
    yield "scaling", f"YaRN's factor {factor:g} is applied twice", with_spec(scaling=twice)
    usual = dataclasses.replace(scaling, attention=None, mscale=None, mscale_all_dim=None).attention_factor()
    if usual != keep:
        text = f"the attention factor is YaRN's usual {usual:.9g}, and the config says {keep:.9g}"
        yield "attention_factor", text, with_factor(usual)
        text = f"the attention factor {keep:.9g} of the config is multiplied by YaRN's usual {usual:.9g}; it is final"
        yield "attention_factor", text, with_factor(usual * keep)


def _blends(case: RotationCase, scaling: Llama3 | YaRN) -> Iterator[Row]:
    """Llama 3's blend and YaRN's ramp with other bounds than the config's, which the scaling itself would refuse."""
    llama3, given = isinstance(scaling, Llama3), vars(scaling)
    low, high = ("low_freq_factor", "high_freq_factor") if llama3 else ("beta_slow", "beta_fast")
    length = given["original_max_position"]
    text = f"{low} and {high} are exchanged"
    yield "scaling", text, _frequencies_of(_unchecked(scaling, {low: given[high], high: given[low]}), case)
    plain, own = case.spec.replace(scaling=None).inv_freq(), case.spec.inv_freq()
    kept, slowed = (torch.isclose(own, x, rtol=1e-9, atol=0.0) for x in (plain, plain / scaling.factor))
    mirrored = plain + plain / scaling.factor - own
    text = f"the {scaling.name} blend is reversed: slow pairs are kept and fast ones divided, or so between the bounds"
    frequencies = torch.where(kept | slowed, own, mirrored) if llama3 else mirrored
    yield "scaling", text, with_fields(frequencies=frequencies)
    lengths = (*LENGTHS, length * scaling.factor, length / scaling.factor, *(length * n for n in NEAR))
    others = {low: [given[low] * n for n in NEAR], high: [given[high] * n for n in NEAR]}
    for name, values in {**others, "original_max_position": map(round, lengths)}.items():
        for value in dict.fromkeys(values):
            if value > 0 and value != given[name]:
                text = f"{name} of the {scaling.name} scaling is {value:,.6g}, and must be {given[name]:,.6g}"
                yield "scaling", text, _frequencies_of(_unchecked(scaling, {name: value}), case)


def _unchecked(scaling: Llama3 | YaRN, changes: dict[str, Any]) -> Scaling:
    """The scaling with these fields, which it is not asked about. Meta's code keeps fast pairs before it divides slow
    ones, so that where its bounds are exchanged the lower one alone counts."""
    other = copy.copy(scaling)
    for name, value in changes.items():
        object.__setattr__(other, name, value)
    if isinstance(other, Llama3) and other.low_freq_factor > other.high_freq_factor:
        object.__setattr__(other, "low_freq_factor", other.high_freq_factor)
    return other
