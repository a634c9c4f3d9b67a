"""Operators that ONNX's own reference has not, or not for all sizes."""

from functools import lru_cache
from typing import Any

import numpy as np

from .library import library
from .microsoft import turned


@lru_cache(maxsize=1)
def operators() -> list[Any]:
    library()
    from onnx.reference.op_run import OpRun

    class RotaryEmbedding(OpRun):
        op_domain = "com.microsoft"

        def _run(self, x: Any, ids: Any, cos: Any, sin: Any, **marks: Any) -> tuple[Any]:
            return (turned(x, ids, cos, sin, **{name: value or 0 for name, value in marks.items()}),)

    class GatherElements(OpRun):
        """The reference's own takes at most 64 rows, and no fewer indices than there are elements beside the axis."""

        op_domain = ""

        def _run(self, data: Any, indices: Any, axis: int | None = None) -> tuple[Any]:
            along = (axis or 0) % data.ndim
            kept = tuple(slice(None) if i == along else slice(size) for i, size in enumerate(indices.shape))
            return (np.take_along_axis(data[kept], indices.astype(np.int64), along),)

    return [RotaryEmbedding, GatherElements]
