"""Which positions a model uses: what stopping and slowing its pairs costs, and what each head looks at."""

from .cells import Place, PlaceCost
from .heads import HeadUse
from .pairs import PairUse
from .study import Study, study, study_folder

__all__ = ["PlaceCost", "HeadUse", "PairUse", "Place", "Study", "study", "study_folder"]
