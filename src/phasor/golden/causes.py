"""The known mistakes of rotary code, each as a change to the right way of rotating."""

from collections.abc import Iterator

import torch

from ..spec import RotarySpec
from .factors import of_axes, of_scaling, of_width
from .imitate import Case
from .mistake import Mistake, with_fields, with_spec

_DTYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}
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


def mistakes(case: Case, softmax_factor: float, temperature: torch.Tensor | None) -> Iterator[Mistake]:
    """Every known mistake that would show in this case, the simplest first."""
    spec = case.spec
    yield Mistake("not_rotated", "nothing was rotated: the result is the input", with_fields(turned=False))
    yield from _positions(spec)
    yield from _layout(spec)
    yield from _factor(case, softmax_factor, temperature)
    yield from of_scaling(case)
    yield from of_width(spec)
    yield from of_axes(spec)
    for name, dtype in _DTYPES.items():
        for places, says in _PLACES:
            yield Mistake("low_precision", says.format(name), with_fields(coarse=places, dtype=dtype))


def _positions(spec: RotarySpec) -> Iterator[Mistake]:
    for by in (1, -1, 2, -2):
        way = "high" if by > 0 else "low"
        yield Mistake(
            "positions",
            f"positions are too {way} by {abs(by)}" + (" (counted from 1 instead of 0?)" if by == 1 else ""),
            lambda case, by=by: case.replace(positions=case.positions + by),  # type: ignore[misc]
        )
    yield Mistake(
        "positions",
        "angles are doubled: rotated twice, or positions counted twice",
        lambda case: case.replace(positions=2 * case.positions),
    )
    if spec.position_scale != 1:
        says = f"positions were not multiplied by position_scale = {spec.position_scale:.9g}"
        yield Mistake("positions", says, with_spec(position_scale=1.0))


def _layout(spec: RotarySpec) -> Iterator[Mistake]:
    names = {True: "interleaved (2i, 2i + 1)", False: f"halves (i, i + {spec.pairs})"}
    there, here = names[not spec.interleaved], names[spec.interleaved]
    says = f"pairs are {there} there and must be {here}"
    yield Mistake("layout", says, with_spec(interleaved=not spec.interleaved, permuted=False, blocks=1))
    if spec.blocks > 1:
        says = f"pairs are halves of all {spec.rotary_dim} channels there, and must be halves inside each of"
        yield Mistake("layout", f"{says} {spec.blocks} blocks", with_spec(blocks=1))
    for moved in ("to halves", "to interleaved"):
        says = (
            f"the values are right but the channels are permuted from {_other(moved)} {moved}; scores are not touched"
        )
        yield Mistake("permuted", says, with_fields(moved=moved))
    way = "forwards" if spec.reverse else "backwards"
    yield Mistake("direction", f"it turns {way}: the sign of sin is reversed", with_spec(reverse=not spec.reverse))


def _other(moved: str) -> str:
    return "interleaved" if moved == "to halves" else "halves"


def _factor(case: Case, softmax_factor: float, temperature: torch.Tensor | None) -> Iterator[Mistake]:
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
            says = f"{word}the softmax factor {softmax_factor:.9g} is inside; it belongs to the scores"
            yield Mistake("softmax_factor", says, with_fields(gain=softmax_factor**power))
    if temperature is not None and temperature.ndim == 1:
        says = "the temperature is inside; it is kept apart here"
        yield Mistake("temperature", says, with_fields(gain=temperature.double().unsqueeze(-1)))
