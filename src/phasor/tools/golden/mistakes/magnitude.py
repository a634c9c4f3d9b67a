"""Factors and dtypes: left out, or applied where they must not be."""

from collections.abc import Iterator

import torch
from torch import Tensor

from ..case import RotationCase, Row, with_factor, with_fields


def of_magnitude(case: RotationCase, softmax_factor: float, temperature: Tensor | None) -> Iterator[Row]:
    factor = case.cos_factor
    if factor != 1:
        what = f"the attention factor {factor:.9g}"
        for text, change in (
            ("is missing from cos and sin", with_factor(1.0)),
            ("is squared in cos and sin", with_factor(factor**2)),
            ("is in cos only, not in sin", with_fields(sin_factor=1.0)),
            ("is in sin only, not in cos", with_fields(cos_factor=1.0)),
            ("was divided by", with_fields(gain=factor**-2)),
        ):
            yield "attention_factor", f"{what} {text}", change
    for power, word in ((1.0, ""), (0.5, "the square root of ")) if softmax_factor != 1 else ():
        text = f"{word}the softmax factor {softmax_factor:.9g} is inside; it belongs to the scores"
        yield "softmax_factor", text, with_fields(gain=softmax_factor**power)
    if temperature is not None and temperature.ndim == 1:
        text = "the temperature is inside; it is kept apart here"
        yield "temperature", text, with_fields(gain=temperature.double().unsqueeze(-1))


PLACES = (
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


def of_precision() -> Iterator[Row]:
    for name, dtype in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        for places, text in PLACES:
            rounding = dict.fromkeys(places, lambda x, dtype=dtype: x.to(dtype).double())
            yield "low_precision", text.format(name), with_fields(rounding=rounding)
    text = "positions and frequencies were rounded to TF32 (a product of matrices on a GPU, with allow_tf32)"
    yield "low_precision", text, with_fields(rounding=dict.fromkeys(("positions", "frequencies"), _tf32))


def _tf32(x: Tensor) -> Tensor:
    """As tensor cores take the operands of a float32 product: 10 bits of mantissa, ties away from zero."""
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).double()
