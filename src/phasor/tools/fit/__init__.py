"""The rotation that a model wants at another length: divisors of its frequencies, found by its loss on a text."""

from .fit import fit, fit_folder
from .result import Fit

__all__ = ["Fit", "fit", "fit_folder"]
