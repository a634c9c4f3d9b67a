"""From a config alone: a small model with random weights that rotates as the real one does, and inputs for it."""

from .config import Tiny, tiny_config
from .inputs import first_inputs
from .model import tiny_model
from .reads import Reads, recorded_reads

__all__ = ["Reads", "Tiny", "first_inputs", "recorded_reads", "tiny_config", "tiny_model"]
