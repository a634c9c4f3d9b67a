"""Predictions for people: coloured text for a terminal, one page of HTML for a browser."""

import html
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from .data.merge import Prediction

# Light enough for black text; the first four stay apart for most people (Okabe and Ito 2008).
COLOURS = (
    "#e69f00", "#56b4e9", "#5fd3a9", "#f0e442", "#dda0c8", "#f2948a",
    "#b9a4f0", "#c0c0c0", "#a8d45f", "#d2b48c", "#4fd0d8", "#f7b3d2",
)  # fmt: skip


class Piece(NamedTuple):
    """Characters of a text with the spans they lie in, outermost first, and the spans that end behind them."""

    text: str
    inside: tuple[Prediction, ...]
    ending: tuple[Prediction, ...]


def pieces(text: str, spans: Sequence[Prediction]) -> Iterator[Piece]:
    """The text cut wherever a span begins or ends; spans may nest and cross.

    >>> long, short = Prediction(0, 5, "club", 0.9), Prediction(0, 2, "place", 0.8)
    >>> [(piece.text, len(piece.inside), len(piece.ending)) for piece in pieces("AC Milan", [long, short])]
    [('AC', 2, 1), (' Mi', 1, 1), ('lan', 0, 0)]
    """
    cuts = sorted({0, len(text), *(span.start for span in spans), *(span.end for span in spans)})
    for start, end in pairwise(cuts):
        inside = [span for span in spans if span.start <= start and end <= span.end]
        inside.sort(key=lambda span: (span.start, -span.end, span.label))
        ending = sorted((span for span in inside if span.end == end), key=lambda span: (-span.start, span.label))
        yield Piece(text[start:end], tuple(inside), tuple(ending))


def terminal(text: str, spans: Sequence[Prediction], labels: Sequence[str]) -> Any:
    """A ``rich.text.Text``: each span in the colour of its innermost label, which follows it with its probability."""
    from rich.text import Text

    colours = colours_of(labels)
    out = Text()
    for piece in pieces(text, spans):
        out.append(piece.text, style=f"black on {colours[piece.inside[-1].label]}" if piece.inside else "")
        for span in piece.ending:
            out.append(f" {span.label} {span.score:.2f} ", style=f"bold {colours[span.label]}")
    return out


def page(texts: Sequence[str], predictions: Sequence[Sequence[Prediction]], labels: Sequence[str]) -> str:
    """A page of HTML with nothing outside it. Spans that nest are underlined once for each span around them."""
    colours = colours_of(labels)
    legend = " ".join(
        f'<span class="s" style="background:{c}">{html.escape(name)}</span>' for name, c in colours.items()
    )
    body = "\n".join(
        f'<p dir="auto">{_paragraph(text, spans, colours)}</p>' for text, spans in zip(texts, predictions, strict=True)
    )
    return _PAGE.format(legend=legend, body=body)


def colours_of(labels: Sequence[str]) -> dict[str, str]:
    return {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}


def _paragraph(text: str, spans: Sequence[Prediction], colours: dict[str, str]) -> str:
    out = []
    for piece in pieces(text, spans):
        words = html.escape(piece.text)
        if piece.inside:
            *around, inner = piece.inside
            lines = ",".join(f"0 {3 * i + 3}px 0 {colours[span.label]}" for i, span in enumerate(reversed(around)))
            style = f"background:{colours[inner.label]}" + (f";box-shadow:{lines}" if lines else "")
            title = html.escape(", ".join(f"{span.label} {span.score:.3f}" for span in piece.inside))
            words = f'<span class="s" style="{style}" title="{title}">{words}</span>'
        badges = (f'<sub style="color:{colours[span.label]}">{html.escape(span.label)}</sub>' for span in piece.ending)
        out.append(words + "".join(badges))
    return "".join(out)


_PAGE = """<!doctype html>
<html><head><meta charset="utf-8"><title>Spans</title><style>
body {{ font: 17px/2.1 system-ui, sans-serif; max-width: 50em; margin: 2em auto; padding: 0 1em; color: #111; }}
.s {{ padding: 1px 2px; border-radius: 2px; }}
sub {{ font: bold .62em sans-serif; margin: 0 .3em 0 .15em; filter: brightness(.62); vertical-align: baseline; }}
p {{ white-space: pre-wrap; border-bottom: 1px solid #eee; margin: 0; padding: .3em 0; }}
</style></head><body><p>{legend}</p>
{body}
</body></html>
"""
