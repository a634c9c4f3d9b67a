"""phasor bench --device cuda: what a rotation costs on a GPU, in units of a copy of the same bytes."""

from .cases import CASES
from .clock import Clock, CudaClock
from .run import run_on

__all__ = ["CASES", "Clock", "CudaClock", "run_on"]
