"""Names for numbers: which base and which scaling give the frequencies that a running model showed."""

from .answer import Named, named

__all__ = ["Named", "named"]
