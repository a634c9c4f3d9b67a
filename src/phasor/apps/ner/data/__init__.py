"""Texts with labelled spans: read from files, checked, and laid on the tokens of a tokenizer."""

from .example import Entity, Example, labels_of
from .read import FORMATS, read
from .windows import AlignmentReport, Encoded, Prediction, align, merge

__all__ = [
    "Entity",
    "Example",
    "labels_of",
    "FORMATS",
    "read",
    "Encoded",
    "AlignmentReport",
    "align",
    "Prediction",
    "merge",
]
