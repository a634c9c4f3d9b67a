"""Values that passed through half precision where they must not."""

from collections.abc import Iterator

import torch

from .mistake import Mistake, with_fields

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


def of_precision() -> Iterator[Mistake]:
    for name, dtype in _DTYPES.items():
        for places, says in _PLACES:
            yield Mistake("low_precision", says.format(name), with_fields(coarse=places, dtype=dtype))
