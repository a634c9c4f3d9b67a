"""Commands that `phasor` finds by the entry points of this package."""
