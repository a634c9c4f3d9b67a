"""What `phasor.patch` reports, and phasor's rotation in the place of a model's own function."""

from .tools.patch import HookedRotary, PatchReport

__all__ = ["HookedRotary", "PatchReport"]
