"""Values that are not finite, counted in raw bytes of any float dtype."""

import numpy as np
import numpy.typing as npt

# dtype -> integer of its width, its bits without the sign, the least of them that is infinite or NaN
SPECIAL = {
    "BF16": (np.uint16, 0x7FFF, 0x7F80), "F16": (np.uint16, 0x7FFF, 0x7C00), "F32": (np.uint32, 2**31 - 1, 0x7F800000),
    "F64": (np.uint64, 2**63 - 1, 0x7FF0000000000000), "F8_E5M2": (np.uint8, 0x7F, 0x7C),
    "F8_E4M3": (np.uint8, 0x7F, 0x7F),
}  # fmt: skip


def not_finite(data: npt.NDArray[np.uint8], dtype: str) -> int:
    """How many values in raw bytes are NaN or infinite.

    >>> not_finite(np.array([1.0, np.inf, np.nan], dtype=np.float32).view(np.uint8), "F32")
    2
    """
    if dtype not in SPECIAL or not data.size:
        return 0
    kind, mask, least = SPECIAL[dtype]
    values = data.view(kind) & kind(mask)
    return int(np.count_nonzero(values >= least)) if values.max() >= least else 0
