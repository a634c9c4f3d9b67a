"""What a file of mistakes yields: cause, sentence, and the change that it is."""

from ..case import Change

Row = tuple[str, str, Change]
