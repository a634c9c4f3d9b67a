"""Which positions a model uses: what stopping and slowing its pairs costs, and what each head looks at."""

from .heads import HeadUse
from .pairs import PairUse
from .result import Study
from .study import study, study_folder
from .trained import TrainedLength

__all__ = ["HeadUse", "PairUse", "Study", "TrainedLength", "study", "study_folder"]
