"""The curves of the lab, with matplotlib. Readable in print, on a phone, and with any colour vision."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from phasor.support.plain_text import figure_text

from .results import PairedDifference

# yellow lines vanish on white; the further two are for the nine schemes of an extension
# Okabe-Ito without its yellow, and two more
COLORS = ["#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#999999", "#000000", "#7B3294"]
MARKERS = "osD^vPX*<>"
LINES = ("-", (0, (5, 1.5)), (0, (1, 1)), (0, (4, 1, 1, 1)), (0, (8, 2, 1, 2, 1, 2)))  # one after the other
SMOOTH = 2  # points: standard deviation of the weights of a smoothed curve

Curve = Sequence[tuple[float, Sequence[float]]]  # points x and the values of all seeds there


def look(i: int) -> dict[str, Any]:
    """Colour, dashes and marker of the i-th line: neighbours differ in all three."""
    return {"color": COLORS[i % len(COLORS)], "linestyle": LINES[i % len(LINES)], "marker": MARKERS[i % len(MARKERS)]}


def curves(
    data: Mapping[str, Curve],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    trained: int | None = None,
    log: bool = True,
    smooth: bool = False,
    share: bool = False,
) -> Any:
    """One line per name through the means, with a band from the least to the greatest seed where there are several.

    ``smooth``: the means faint, and a line through their weighted neighbours (`smoothed`).
    """
    figure, ax = _axes(title, xlabel, ylabel)
    ends = []
    for i, (name, points) in enumerate(data.items()):
        points = [(x, [v for v in values if v is not None]) for x, values in points]
        points = [(x, values) for x, values in points if values]
        if not points:
            continue
        xs, style = [x for x, _ in points], look(i)
        name, means = figure_text(name), [sum(values) / len(values) for _, values in points]
        if smooth:
            ax.plot(xs, means, color=style["color"], linewidth=0.8, alpha=0.35)
            means = smoothed(means)
        every = max(1, len(xs) // 8)
        ax.plot(xs, means, label=name, markevery=every, markersize=6, linewidth=1.8, **style)
        low, high = [min(v) for _, v in points], [max(v) for _, v in points]
        if low != high and not smooth:
            ax.fill_between(xs, low, high, color=style["color"], alpha=0.2, linewidth=0)
        ends.append((name, xs[-1], means[-1], style["color"]))
    if log:
        _log_ticks(ax, sorted({x for points in data.values() for x, _ in points}))
    if share:
        ax.set_ylim(-0.03, 1.03)
    _mark_trained(ax, trained)
    return _finished(figure, ax, ends)


def intervals(
    data: Mapping[str, Sequence[tuple[float, PairedDifference]]],
    *,
    title: str,
    xlabel: str,
    ylabel: str,
    trained: int | None = None,
) -> Any:
    """One line per name through differences, each with its interval; zero is where there is none."""
    figure, ax = _axes(title, xlabel, ylabel)
    ends = []
    for i, (name, points) in enumerate(data.items()):
        style, xs = look(i + 1), [x for x, _ in points]  # the first look is that of the reference
        name = figure_text(name)
        means = [d.mean for _, d in points]
        lengths = [[max(0.0, d.mean - d.low) for _, d in points], [max(0.0, d.high - d.mean) for _, d in points]]
        ax.errorbar(xs, means, lengths, label=name, capsize=4, markersize=6, linewidth=1.8, **style)
        ends.append((name, xs[-1], means[-1], style["color"]))
    ax.axhline(0, color="black", linewidth=1)
    _mark_trained(ax, trained)
    _log_ticks(ax, sorted({x for points in data.values() for x, _ in points}))
    return _finished(figure, ax, ends)


def smoothed(values: Sequence[float]) -> list[float]:
    """Each value with its neighbours, weighted by a Gaussian of `SMOOTH` points; at the ends by what is there of it.

    >>> smoothed([1.0, 1.0, 1.0])
    [1.0, 1.0, 1.0]
    """
    weights = np.exp(-0.5 * (np.arange(-3 * SMOOTH, 3 * SMOOTH + 1) / SMOOTH) ** 2)
    sums, totals = (np.convolve(x, weights)[3 * SMOOTH : -3 * SMOOTH] for x in (values, np.ones(len(values))))
    return (sums / totals).tolist()


def apart(values: Sequence[float], step: float) -> list[float]:
    """Places for sorted values, at least a step from each other; those that had to move stand around their mean.

    >>> apart([1.0, 1.0, 5.0], 1.0)
    [0.5, 1.5, 5.0]
    """
    groups: list[list[float]] = []
    for value in values:
        groups.append([value])
        while len(groups) > 1 and _spread(groups[-1], step)[0] < _spread(groups[-2], step)[-1] + step:
            groups[-2:] = [groups[-2] + groups[-1]]
    return [place for group in groups for place in _spread(group, step)]


def _spread(group: Sequence[float], step: float) -> list[float]:
    middle = sum(group) / len(group)
    return [middle + (i - (len(group) - 1) / 2) * step for i in range(len(group))]


def _axes(title: str, xlabel: str, ylabel: str) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4, 4.8), layout="constrained")
    ax = figure.add_subplot()
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_title(title, fontsize=13, loc="left")
    ax.set_xlabel(xlabel, fontsize=12)
    ax.set_ylabel(ylabel, fontsize=12)
    ax.tick_params(labelsize=11)
    return figure, ax


def _mark_trained(ax: Any, trained: int | None) -> None:
    """A dotted line, and its name in a strip above everything that is drawn."""
    if trained is not None:
        low, high = ax.get_ylim()
        ax.set_ylim(low, high + 0.08 * (high - low))
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


def _log_ticks(ax: Any, xs: Sequence[float]) -> None:
    ax.set_xscale("log", base=2)
    ax.minorticks_off()
    shown = [x for i, x in enumerate(xs) if i == 0 or math.log2(x / xs[0]) % 1 < 1e-9]
    ax.set_xticks(shown, [f"{x:g}" for x in shown])


def _finished(figure: Any, ax: Any, ends: Sequence[tuple[str, float, float, str]]) -> Any:
    """The legend below, and each name once more where its line ends, none upon another."""
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=11, handlelength=3.4)
    low, high = ax.get_ylim()
    ends = sorted(ends, key=lambda end: end[2])
    for (name, x, _, color), y in zip(ends, apart([end[2] for end in ends], 0.055 * (high - low)), strict=True):
        ax.annotate(
            name, (x, y), (10, 0), textcoords="offset points", color=color, va="center", fontsize=9,
            annotation_clip=False,
        )  # fmt: skip
    return figure
