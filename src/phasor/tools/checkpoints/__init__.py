"""Checkpoints: the rows of q and k from one pair layout to another, in any format, with a proof.

`make_plan` says what a conversion will do, `convert` does it, `detect` says which layout weights are in.
"""

from typing import TYPE_CHECKING

from ...support.later import later
from .formats import register_format
from .in_place import convert_in_place
from .output import Output
from .permutation import inverse, order_of, reorder, with_pairs
from .plan import ConversionPlan, make_plan
from .run import convert
from .source import Format, Source

if TYPE_CHECKING:
    from .detection import Detection, detect

__getattr__, __dir__ = later(__name__, dict.fromkeys(("Detection", "detect"), ".detection"))  # which imports numpy

Plan, in_words = ConversionPlan, with_pairs  # earlier names

__all__ = [
    "Detection",
    "ConversionPlan",
    "Format",
    "Output",
    "Source",
    "register_format",
    "convert",
    "convert_in_place",
    "detect",
    "inverse",
    "make_plan",
    "order_of",
    "reorder",
    "with_pairs",
]
