"""The rotation that a model wants at another length: divisors of its frequencies, found by its loss on a text."""

from .fit import Fit, fit, fit_folder
from .pairs import PairUse, pair_use, study_folder

__all__ = ["Fit", "PairUse", "fit", "fit_folder", "pair_use", "study_folder"]
