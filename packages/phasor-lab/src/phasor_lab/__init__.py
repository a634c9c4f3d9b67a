"""Trainings and measurements with phasor: the lab, span recognition, which positions a model uses, the best frequencies
for a longer context, the atlas and the demo; and `run_folder`, where trainings keep their files."""

from typing import TYPE_CHECKING

from phasor.support.later import later

if TYPE_CHECKING:
    from .fitting import fit
    from .studying import study

__getattr__, __dir__ = later(__name__, {"fit": ".fitting", "study": ".studying"})

__all__ = ["fit", "study"]
