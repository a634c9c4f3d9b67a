"""Texts with labelled spans: read from files, checked, and laid on the tokens of a tokenizer."""

from .example import Entity, Example, labels_of
from .holdout import hold_out
from .read import read
from .windows import AlignmentReport, Encoded, Prediction, align, merge, usual_mode

__all__ = [
    "Entity",
    "Example",
    "labels_of",
    "hold_out",
    "read",
    "Encoded",
    "AlignmentReport",
    "align",
    "Prediction",
    "merge",
    "usual_mode",
]
