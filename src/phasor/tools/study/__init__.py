"""Which positions a model uses: what stopping and slowing its pairs costs, and what each head looks at."""

from .cells import Cell, Place
from .heads import HeadUse
from .pairs import PairUse
from .study import Study, study, study_folder

__all__ = ["Cell", "HeadUse", "PairUse", "Place", "Study", "study", "study_folder"]
