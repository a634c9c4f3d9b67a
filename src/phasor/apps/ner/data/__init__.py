"""Texts with labelled spans: read from files, checked, and laid on the tokens of a tokenizer."""

from .align import align
from .encoded import Encoded, Report
from .example import Entity, Example, labels_of
from .merge import Prediction, merge
from .read import FORMATS, read

__all__ = ["Entity", "Example", "labels_of", "FORMATS", "read", "Encoded", "Report", "align", "Prediction", "merge"]
