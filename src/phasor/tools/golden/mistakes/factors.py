"""Scalings, factors and dtypes: left out, taken for others, or applied where they must not be."""

import dataclasses
from collections.abc import Iterator

import torch

from ....rotary.scaling import NTK, AtLength, Linear, YaRN, YaRNPaper
from ..case import Mistake, RotationCase, with_fields, with_spec

_DTYPES: dict[str, torch.dtype | str] = {"bfloat16": torch.bfloat16, "float16": torch.float16}
_PLACES = (
    (("results",), "only the results were rounded to {}; give them under the bfloat16 names, which allow for that"),
    (("tables",), "cos and sin were rounded to {}; keep them in float32 and round the result once"),
    (("frequencies",), "inv_freq was rounded to {} (a buffer that was converted?)"),
    (("positions",), "positions were rounded to {}"),
    (("angles",), "angles were rounded to {}"),
    (("positions", "frequencies", "angles"), "positions, frequencies and angles were formed in {}"),
    (("frequencies", "angles"), "frequencies and angles were formed in {}"),
    (("positions", "frequencies", "angles", "tables"), "all was formed in {}: positions, angles, cos and sin"),
    (("angles", "tables"), "angles, cos and sin were rounded to {}"),
)


def of_scaling(case: RotationCase) -> Iterator[Mistake]:
    spec, scaling = case.spec, case.spec.scaling
    if scaling is None:
        return
    if isinstance(scaling, AtLength):
        yield Mistake("scaling", f"the {scaling.scaling.name} scaling is ignored", with_spec(scaling=None))
        yield from _of_other_lengths(scaling, case)
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
            text = f"the scaling is {scheme.name} with factor {factor:g}, and must be {scaling.name}"
            yield Mistake("scaling", text, with_spec(scaling=scheme(float(factor))))  # type: ignore[arg-type]
    if isinstance(scaling, Linear):
        text = f"the factor of the linear scaling is {scaling.factor / 2:g}, and must be {scaling.factor:g}"
        yield Mistake("scaling", text, with_spec(scaling=Linear(scaling.factor / 2)))
        text = f"frequencies are multiplied by the factor {scaling.factor:g}, and must be divided by it"
        yield Mistake("scaling", text, with_spec(scaling=Linear(1 / scaling.factor)))
    if isinstance(scaling, YaRN):
        yield from _yarn(scaling)
    if spec.length_dependent:
        length = scaling.trained_length or case.seq_len or 1
        other = length if case.seq_len != length else 4 * length
        text = f"the frequencies are those of sequences of {other:,} tokens, and must be those of {case.seq_len:,}"
        value = spec.attention_factor(other)
        yield Mistake("seq_len", text, with_fields(seq_len=other, cos_factor=value, sin_factor=value))


def _of_other_lengths(scaling: AtLength, case: RotationCase) -> Iterator[Mistake]:
    kept = case.cos_factor
    for length in () if scaling.seq_len is None else (scaling.seq_len // 4, scaling.seq_len * 4):
        text = f"the frequencies are those of sequences of {length:,} tokens, and must be those of {scaling.seq_len:,}"
        other = dataclasses.replace(scaling, seq_len=max(length, 1))
        yield Mistake(
            "seq_len",
            text,
            lambda case, s=other: with_spec(scaling=s)(case).replace(cos_factor=kept, sin_factor=kept),  # type: ignore[misc]
        )


def _yarn(scaling: YaRN) -> Iterator[Mistake]:
    did = "not rounded" if scaling.truncate else "rounded outwards"
    other = dataclasses.replace(scaling, truncate=not scaling.truncate)
    text = f"the bounds of YaRN's ramp are {did} there (truncate must be {scaling.truncate})"
    yield Mistake("yarn_truncate", text, with_spec(scaling=other))
    keep = scaling.attention_factor()

    def paper(
        case: RotationCase,
    ) -> RotationCase:  # ValueError for what the paper's ramp cannot have: Kimi K2's beta_fast = 1
        ramp = YaRNPaper(scaling.factor, scaling.original_max_position, scaling.beta_slow, scaling.beta_fast)
        return with_spec(scaling=ramp)(case).replace(cos_factor=keep, sin_factor=keep)

    yield Mistake(
        "scaling",
        "YaRN's ramp is linear in the number of turns, as in the paper, and must be linear in the pair index",
        paper,
    )
    factor, length = scaling.factor, scaling.original_max_position
    for text, changes in (
        (f"YaRN's factor {factor:g} is applied twice", {"factor": factor**2}),
        (f"YaRN's ramp is that of a trained length of {factor * length:,.0f}, and must be that of {length:,}",
         {"original_max_position": round(factor * length)}),
    ):  # fmt: skip
        yield Mistake("scaling", text, with_spec(scaling=dataclasses.replace(scaling, **changes)))  # type: ignore[arg-type]
    usual = dataclasses.replace(scaling, attention=None, mscale=None, mscale_all_dim=None).attention_factor()
    if usual != keep:
        text = f"the attention factor is YaRN's usual {usual:.9g}, and the config says {keep:.9g}"
        yield Mistake("attention_factor", text, with_fields(cos_factor=usual, sin_factor=usual))
        both = usual * keep
        text = f"the attention factor {keep:.9g} of the config is multiplied by YaRN's usual {usual:.9g}; it is final"
        yield Mistake("attention_factor", text, with_fields(cos_factor=both, sin_factor=both))


def of_magnitude(case: RotationCase, softmax_factor: float, temperature: torch.Tensor | None) -> Iterator[Mistake]:
    factor = case.cos_factor
    if factor != 1:
        what = f"the attention factor {factor:.9g}"
        both = {"missing from": 1.0, "squared in": factor**2}
        for word, value in both.items():
            change = with_fields(cos_factor=value, sin_factor=value)
            yield Mistake("attention_factor", f"{what} is {word} cos and sin", change)
        yield Mistake("attention_factor", f"{what} is in cos only, not in sin", with_fields(sin_factor=1.0))
        yield Mistake("attention_factor", f"{what} is in sin only, not in cos", with_fields(cos_factor=1.0))
        yield Mistake("attention_factor", f"{what} was divided by", with_fields(gain=factor**-2))
    for power, word in ((1.0, ""), (0.5, "the square root of ")):
        if softmax_factor != 1:
            text = f"{word}the softmax factor {softmax_factor:.9g} is inside; it belongs to the scores"
            yield Mistake("softmax_factor", text, with_fields(gain=softmax_factor**power))
    if temperature is not None and temperature.ndim == 1:
        text = "the temperature is inside; it is kept apart here"
        yield Mistake("temperature", text, with_fields(gain=temperature.double().unsqueeze(-1)))


def of_precision() -> Iterator[Mistake]:
    for name, dtype in _DTYPES.items():
        for places, text in _PLACES:
            yield Mistake("low_precision", text.format(name), with_fields(coarse=places, dtype=dtype))
    text = "positions and frequencies were rounded to TF32 (a product of matrices on a GPU, with allow_tf32)"
    yield Mistake("low_precision", text, with_fields(coarse=("positions", "frequencies"), dtype="tf32"))
