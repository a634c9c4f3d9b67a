"""The curves of the lab, with matplotlib. Readable in print, on a phone, and with any colour vision."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..run_folder.pictures import figure_text

# Okabe-Ito without its yellow, which vanishes on white, and two more for the nine schemes of an extension
COLORS = ["#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#999999", "#000000", "#7B3294"]
MARKERS = "osD^vPX*<>"
LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (8, 2, 1, 2, 1, 2)))  # one after the other

Curve = Sequence[tuple[float, Sequence[float]]]  # points x and the values of all seeds there


def look(i: int) -> dict[str, Any]:
    """Colour, dashes and marker of the i-th line: neighbours differ in all three."""
    return {"color": COLORS[i % len(COLORS)], "linestyle": LINES[i % len(LINES)], "marker": MARKERS[i % len(MARKERS)]}


def curves(data: Mapping[str, Curve], *, title: str, xlabel: str, trained: int | None = None) -> Any:
    """One line per name through the means, with a band from the least to the greatest seed where there are several;
    a dotted line at the ``trained`` length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 4.8), layout="constrained")
    ax = figure.add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title, fontsize=13, loc="left")
    ax.set_xlabel(xlabel, fontsize=12)
    ax.set_ylabel("loss (nats per byte)", fontsize=12)
    ax.tick_params(labelsize=11)
    for i, (name, points) in enumerate(data.items()):
        xs, style = [x for x, _ in points], look(i)
        means = [sum(values) / len(values) for _, values in points]
        ax.plot(xs, means, label=figure_text(name), markersize=6, linewidth=1.8, **style)
        low, high = [min(v) for _, v in points], [max(v) for _, v in points]
        if low != high:
            ax.fill_between(xs, low, high, color=style["color"], alpha=0.2, linewidth=0)
    if trained is not None:
        ax.axvline(trained, color="black", linewidth=1, linestyle=":")
    _log_ticks(ax, sorted({x for points in data.values() for x, _ in points}))
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=11, handlelength=3.4)
    return figure


def _log_ticks(ax: Any, xs: Sequence[float]) -> None:
    ax.set_xscale("log", base=2)
    ax.minorticks_off()
    shown = [x for i, x in enumerate(xs) if i == 0 or math.log2(x / xs[0]) % 1 < 1e-9]
    ax.set_xticks(shown, [f"{x:g}" for x in shown])
