"""`diagnose`: every check of one model."""

from typing import Any

from .report import Diagnosis


def diagnose(model: Any, inputs: Any = None) -> Diagnosis:
    """Whether the position encoding of a model is right, in the model as it runs, and if not, why."""
    raise NotImplementedError
