"""Predictions for people: the text with its spans in brackets."""

from collections.abc import Sequence
from itertools import pairwise

from phasor.support.plain_text import cut, printable

from .data import Prediction


def marked(text: str, spans: Sequence[Prediction]) -> str:
    """``text`` with a bracket where a span begins and, where it ends, its label and its probability.

    >>> marked("AC Milan won", [Prediction(0, 8, "club", 0.9), Prediction(3, 8, "place", 0.8)])
    '[AC [Milan place 0.80] club 0.90] won'
    """
    out = ""
    for start, end in pairwise(sorted({0, len(text), *(at for span in spans for at in (span.start, span.end))})):
        ending = sorted((span for span in spans if span.end == end), key=lambda span: (-span.start, span.label))
        out += "[" * sum(span.start == start for span in spans) + printable(text[start:end])
        out += "".join(f" {printable(cut(span.label))} {span.score:.2f}]" for span in ending)
    return out
