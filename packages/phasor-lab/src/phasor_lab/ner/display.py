"""Predictions for people: coloured text for a terminal, one page of HTML for a browser."""

from collections.abc import Iterator, Sequence
from importlib.resources import files
from itertools import pairwise
from string import Template
from typing import Any, NamedTuple

from phasor.support.plain_text import cut, html_text, printable

from .data import Prediction

# Light enough for black text; the first four stay apart for most people (Okabe and Ito 2008).
COLOURS = (
    "#e69f00", "#56b4e9", "#5fd3a9", "#f0e442", "#dda0c8", "#f2948a",
    "#b9a4f0", "#c0c0c0", "#a8d45f", "#d2b48c", "#4fd0d8", "#f7b3d2",
)  # fmt: skip


class TextPiece(NamedTuple):
    """Characters of a text with the spans they lie in, outermost first, and the spans that begin before them and end
    behind them."""

    text: str
    inside: tuple[Prediction, ...]
    starting: tuple[Prediction, ...]
    ending: tuple[Prediction, ...]


def pieces(text: str, spans: Sequence[Prediction]) -> Iterator[TextPiece]:
    """The text cut wherever a span begins or ends; spans may nest and cross.

    >>> long, short = Prediction(0, 5, "club", 0.9), Prediction(0, 2, "place", 0.8)
    >>> [(piece.text, len(piece.inside), len(piece.ending)) for piece in pieces("AC Milan", [long, short])]
    [('AC', 2, 1), (' Mi', 1, 1), ('lan', 0, 0)]
    """
    cuts = sorted({0, len(text), *(span.start for span in spans), *(span.end for span in spans)})
    for start, end in pairwise(cuts):
        inside = [span for span in spans if span.start <= start and end <= span.end]
        inside.sort(key=lambda span: (span.start, -span.end, span.label))
        starting = tuple(span for span in inside if span.start == start)
        ending = sorted((span for span in inside if span.end == end), key=lambda span: (-span.start, span.label))
        yield TextPiece(text[start:end], tuple(inside), starting, tuple(ending))


def terminal(text: str, spans: Sequence[Prediction], labels: Sequence[str]) -> Any:
    """A ``rich.text.Text``: each span in the colour of its innermost label, which follows it with its probability."""
    from rich.text import Text

    colours = colours_of(labels)
    out = Text()
    for piece in pieces(text, spans):
        out.append(printable(piece.text), style=f"black on {colours[piece.inside[-1].label]}" if piece.inside else "")
        for span in piece.ending:
            out.append(f" {printable(cut(span.label))} {span.score:.2f} ", style=f"bold {colours[span.label]}")
    return out


def page(texts: Sequence[str], predictions: Sequence[Sequence[Prediction]], labels: Sequence[str]) -> str:
    """A page of HTML with nothing outside it.

    A span has the colour of its label, an edge where it begins and where it ends, and behind it its label and its
    probability; each span around it is a line below it.
    """
    colours = colours_of(labels)
    legend = " ".join(
        f'<span class="s" style="background:{c}">{html_text(cut(name))}</span>' for name, c in colours.items()
    )
    body = "\n".join(
        f'<p dir="auto">{_paragraph(text, spans, colours)}</p>' for text, spans in zip(texts, predictions, strict=True)
    )
    template = Template((files(__package__) / "spans.html").read_text(encoding="utf-8"))
    return template.substitute(legend=legend, body=body)


def colours_of(labels: Sequence[str]) -> dict[str, str]:
    return {label: COLOURS[i % len(COLOURS)] for i, label in enumerate(labels)}


def _paragraph(text: str, spans: Sequence[Prediction], colours: dict[str, str]) -> str:
    out = []
    for piece in pieces(text, spans):
        words = html_text(piece.text)
        if piece.inside:
            *around, inner = piece.inside
            words = f'<span class="s{_edges(piece)}" style="{_style(around, inner, colours)}">{words}</span>'
        badges = (
            f'<sub><i style="background:{colours[span.label]}"></i>{html_text(cut(span.label))} {span.score:.2f}</sub>'
            for span in piece.ending
        )
        out.append(words + "".join(badges))
    return "".join(out)


def _edges(piece: TextPiece) -> str:
    return (" b" if piece.starting else "") + (" e" if piece.ending else "")


def _style(around: Sequence[Prediction], inner: Prediction, colours: dict[str, str]) -> str:
    """The inner span's background, and below it a line for each span around, parted by lines of the page's colour."""
    lines = []
    for i, span in enumerate(reversed(around)):
        lines += [f"0 {5 * i + 2}px 0 var(--page)", f"0 {5 * i + 5}px 0 {colours[span.label]}"]
    return f"background:{colours[inner.label]}" + (f";box-shadow:{','.join(lines)}" if lines else "")
