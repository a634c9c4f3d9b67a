"""Checkpoints: the rows of q and k from one pair layout to another, in any format, with a proof.

`make_plan` says what a conversion will do, `carry_out` does it, `convert` is both; `detect` says which layout weights
are in.
"""

from typing import TYPE_CHECKING

from ...support.later import later
from .formats import register_format
from .output import Output
from .permutation import inverse, order_of, reorder, with_pairs
from .plan import ConversionPlan, make_plan
from .run import carry_out, convert
from .source import Format, Source

if TYPE_CHECKING:
    from .detection import Detection, detect

__getattr__, __dir__ = later(__name__, dict.fromkeys(("Detection", "detect"), ".detection"))  # which imports numpy

__all__ = [
    "Detection",
    "ConversionPlan",
    "Format",
    "Output",
    "Source",
    "register_format",
    "carry_out",
    "convert",
    "detect",
    "inverse",
    "make_plan",
    "order_of",
    "reorder",
    "with_pairs",
]
