"""What rotates q and k of any model, seen on one forward pass: no name, no config and no row is needed."""

from .observation import Fact, Observation
from .observe import observe

__all__ = ["Fact", "Observation", "observe"]
