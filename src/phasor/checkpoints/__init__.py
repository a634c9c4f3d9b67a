"""Checkpoints: the rows of q and k from one pair layout to another, in any format, with a proof.

`make_plan` says what a conversion will do, `convert` does it, `detect` says which layout weights are in.
"""

from .convert import convert
from .permutation import in_words, inverse, order_of, reorder
from .plan import Plan, make_plan

__all__ = ["Plan", "convert", "in_words", "inverse", "make_plan", "order_of", "reorder"]
