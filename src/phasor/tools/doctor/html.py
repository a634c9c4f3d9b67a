"""The doctor's page as one HTML file that holds its picture: where each module's tables part from its config."""

from collections.abc import Sequence
from importlib.resources import files
from string import Template
from typing import Any

from ...support.findings import merged
from ...support.plain_text import figure_text, html_text, png_source
from ...support.png_bytes import png_bytes
from .differences import Curve
from .page import ordered
from .report import Check, Diagnosis

COLUMNS = ("module", "what", "difference", "first at", "why")


def html_page(diagnosis: Diagnosis, curves: Sequence[Curve], more: Sequence[tuple[str, str]] = ()) -> str:
    """The page; ``more`` are titles and texts that follow, such as a report of repair. Needs matplotlib."""
    template = Template((files(__package__) / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        model=html_text(diagnosis.model),
        state=diagnosis.verdict.replace(" ", "-"),
        verdict=html_text(diagnosis.summary()),
        faults="\n".join(_fault(row) for row in merged((*diagnosis.faults, *diagnosis.missing))),
        figure=_figure(curves),
        modules="\n".join(f"<tr>{_cells(curve.module, curve.spec)}</tr>" for curve in curves),
        checks="\n".join(_row(row) for row in ordered(diagnosis)),
        more="\n".join(f"<h2>{html_text(title)}</h2>\n<pre>{html_text(text)}</pre>" for title, text in more),
    )


def _figure(curves: Sequence[Curve]) -> str:
    if not curves:
        return ""
    source = png_source(png(curves))
    caption = html_text(CAPTION)
    return f'<figure><img src="{source}" alt="{caption}"><figcaption>{caption}</figcaption></figure>'


def _fault(row: Check) -> str:
    way_out = f"<br>What to do: {html_text(row.way_out)}." if row.way_out else ""
    effect = f"<strong>{html_text(row.effect[:1].upper() + row.effect[1:])}.</strong><br>" if row.effect else ""
    return f"<p>{effect}{html_text(str(row).removeprefix('wrong: '))}{way_out}</p>"


def _row(row: Check) -> str:
    size = "" if row.size is None else f"{row.size:.2g}"
    first = [] if row.position is None else [f"position {row.position:.10g}"]
    first += [] if row.pair is None else [f"pair {row.pair}"]
    why = " - ".join(filter(None, (row.cause, row.reason)))
    texts = (row.where or "(the model)", row.what, size, ", ".join(first), why)
    cells = "".join(f'<td data-label="{name}">{html_text(t)}</td>' for name, t in zip(COLUMNS, texts, strict=True))
    return f'<tr><td class="{row.verdict.replace(" ", "-")}">{row.verdict}</td>{cells}</tr>'


def _cells(*texts: str) -> str:
    return "".join(f"<td>{html_text(text)}</td>" for text in texts)


# Okabe-Ito, as elsewhere; modules also differ in their line.
COLORS = ("#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", "-.", ":")
FLOOR = 1e-9  # nothing below shows in float32
CAPTION = (
    "Largest difference of cos or sin from those of the config, by position. Below the dashed line it is the rounding "
    "of float32; 2 is the opposite direction; a cross is no number at all."
)


def figure(curves: Sequence[Curve]) -> Any:
    """A matplotlib figure of all curves on two log scales."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 3.6), layout="constrained")
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
    for i, curve in enumerate(curves):
        color, line = COLORS[i % len(COLORS)], LINES[i % len(LINES)]
        finite = [(p + 1, max(x, FLOOR)) for p, x in zip(curve.positions, curve.apart, strict=True) if x < 1e9]
        ax.plot(*zip(*finite, strict=True) if finite else ((), ()), line, color=color, label=figure_text(curve.module))
        lost = [p + 1 for p, x in zip(curve.positions, curve.apart, strict=True) if x >= 1e9]
        ax.plot(lost, [2.0] * len(lost), "x", color=color, markersize=3)
    ax.axhline(3e-7, color="black", linestyle="--", linewidth=0.8)
    ax.set(xscale="log", yscale="log", ylim=(FLOOR / 2, 5), xlabel="position + 1", ylabel="difference of cos, sin")
    ax.legend(frameon=False, loc="lower right", fontsize="small")
    return figure


def png(curves: Sequence[Curve]) -> bytes:
    """The figure as a file."""
    return png_bytes(figure(curves), dpi=120)
