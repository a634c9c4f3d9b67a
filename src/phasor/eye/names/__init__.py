"""Names for numbers: which base and which scaling give the frequencies that a running model showed.

Nothing is guessed. A name is only what reproduces all that was seen, at every length at which it was seen; its numbers
are the config's, or short decimals solved from the frequencies. What was not seen is told (`Named.open`).
"""

from .answer import Named, named

__all__ = ["Named", "named"]
