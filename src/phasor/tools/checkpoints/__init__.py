"""Checkpoints: the rows of q and k from one pair layout to another, in any format, with a proof.

`make_plan` says what a conversion will do, `convert` does it, `detect` says which layout weights are in.
"""

from .detect import Detection, detect
from .in_place import convert_in_place
from .permutation import in_words, inverse, order_of, reorder
from .plan import Plan, make_plan
from .run import convert

__all__ = [
    "Detection",
    "Plan",
    "convert",
    "convert_in_place",
    "detect",
    "in_words",
    "inverse",
    "make_plan",
    "order_of",
    "reorder",
]
