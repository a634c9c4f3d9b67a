"""Checkpoints: the rows of q and k from one pair layout to another, in any format, with a proof.

`make_plan` says what a conversion will do, `convert` does it, `detect` says which layout weights are in. A format of
your own is a `Source` and an `Output` in a `Format` (docs/extending_format.md).
"""

from .tools.checkpoints import Format, Output, Source, convert, detect, make_plan, register_format

__all__ = ["Format", "Output", "Source", "convert", "detect", "make_plan", "register_format"]
