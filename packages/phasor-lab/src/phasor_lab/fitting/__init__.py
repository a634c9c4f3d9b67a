"""The best frequencies of one model for a longer context: divisors of its frequencies, found by its loss on a text."""

from .fit import fit, fit_folder
from .result import Fit

__all__ = ["Fit", "fit", "fit_folder"]
