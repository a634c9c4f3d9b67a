"""The rotation that a model wants at another length: divisors of its frequencies, found by its loss on a text."""

from .fit import Fit, fit, fit_folder

__all__ = ["Fit", "fit", "fit_folder"]
