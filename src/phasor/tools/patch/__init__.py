"""phasor inside other people's models: `patch` a transformers model, one instance at a time, and `unpatch` it."""

from .hooked import HookedRotary
from .patch import patch, unpatch
from .report import PatchReport

__all__ = ["HookedRotary", "PatchReport", "patch", "unpatch"]
