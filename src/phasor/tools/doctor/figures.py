"""The picture of the doctor's page: where each module's tables part from its config."""

import io
from collections.abc import Sequence
from typing import Any

from .differences import Curve

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
        ax.plot(*zip(*finite, strict=True) if finite else ((), ()), line, color=color, label=curve.module)
        lost = [p + 1 for p, x in zip(curve.positions, curve.apart, strict=True) if x >= 1e9]
        ax.plot(lost, [2.0] * len(lost), "x", color=color, markersize=3)
    ax.axhline(3e-7, color="black", linestyle="--", linewidth=0.8)
    ax.set(xscale="log", yscale="log", ylim=(FLOOR / 2, 5), xlabel="position + 1", ylabel="difference of cos, sin")
    ax.legend(frameon=False, loc="lower right", fontsize="small")
    return figure


def png(curves: Sequence[Curve]) -> bytes:
    """The figure as a file."""
    data = io.BytesIO()
    figure(curves).savefig(data, format="png", dpi=120)
    return data.getvalue()
