"""The curves of the lab, with matplotlib. Readable in print, on a phone, and with any colour vision."""

import io
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ...inspect.figures import COLORS as ALL

COLORS = [color for color in ALL if color != "#F0E442"]  # yellow lines vanish on white
MARKERS = "osD^vPX*<>"
LINES = ("-", "--", "-.", ":")

Curve = Sequence[tuple[float, Sequence[float]]]  # points x and the values of all seeds there


def curves(
    data: Mapping[str, Curve],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    trained: int | None = None,
    log: bool = True,
    markers: bool = True,
    share: bool = False,
) -> Any:
    """One line per name through the means, with a band from the least to the greatest seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.0, 4.6 + 0.25 * ((len(data) - 1) // 3)), layout="constrained")
    ax = figure.add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    for i, (name, points) in enumerate(data.items()):
        points = [(x, [v for v in values if v is not None]) for x, values in points]
        points = [(x, values) for x, values in points if values]
        if not points:
            continue
        xs = [x for x, _ in points]
        means = [sum(values) / len(values) for _, values in points]
        style: dict[str, Any] = {"color": COLORS[i % len(COLORS)], "linestyle": LINES[i // len(COLORS) % len(LINES)]}
        marker = MARKERS[i % len(MARKERS)]
        every = 1 if markers else max(1, len(xs) // 8)
        ax.plot(xs, means, label=name, marker=marker, markevery=every, markersize=6, linewidth=1.8, **style)
        low, high = [min(v) for _, v in points], [max(v) for _, v in points]
        if low != high:
            ax.fill_between(xs, low, high, color=style["color"], alpha=0.2, linewidth=0)
    if trained is not None:
        ax.axvline(trained, color="black", linewidth=1, linestyle=":")
        ax.annotate(
            "trained length",
            (trained, 1),
            (4, -4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize=10,
        )
    if log:
        ticks = sorted({x for points in data.values() for x, _ in points})
        ax.set_xscale("log", base=2)
        ax.minorticks_off()
        shown = [t for i, t in enumerate(ticks) if i == 0 or math.log2(t / ticks[0]) % 1 < 1e-9] if markers else None
        if shown is not None:
            ax.set_xticks(shown, [f"{t:g}" for t in shown])
    if share:
        ax.set_ylim(-0.03, 1.03)
    ax.set_title(title, fontsize=13, loc="left")
    ax.set_xlabel(xlabel, fontsize=12)
    ax.set_ylabel(ylabel, fontsize=12)
    ax.tick_params(labelsize=11)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=11)
    return figure


def png(figure: Any) -> bytes:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
