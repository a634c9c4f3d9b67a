"""The pictures of a rotation, with matplotlib: wavelengths and decay. Each says what it shows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasor.models.configs import ModelRotary
from phasor.models.published_lengths import published_length
from phasor.support.number_text import ranges
from phasor.support.whole_files import write_together
from phasor.tools.inspect.numbers import SpecFacts, bound, envelope
from phasor.tools.inspect.rows import axis_names, trained_is_stated, unit

from ..run_folder.pictures import png_bytes

# Okabe-Ito: told apart with any colour vision. Regimes also differ in their marker.
COLORS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442", "#999999")
COLUMNS = 300  # of a band
REGIMES = {
    "kept": ("#0072B2", "o"),
    "blended": ("#E69F00", "^"),
    "slowed": ("#D55E00", "s"),
    "stopped": ("#999999", "x"),
}


@dataclass(frozen=True)
class Picture:
    """One PNG of a model, and a sentence on what to see in it, which names its rotation if there are several."""

    path: Path
    caption: str


def save_figures(model: ModelRotary, facts: Sequence[SpecFacts], folder: Path) -> dict[str, Picture]:
    """Draw every figure of a model into ``folder`` as PNG; returns ``{name: picture}``, names in reading order.

    Wavelengths and decay are drawn for each distinct rotation. All of them are written or none: ``OSError`` names the
    file that failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    captions: dict[str, str] = {}
    published = published_length(model) is not None
    for n, (fact, layers) in enumerate(zip(facts, model.distinct.values(), strict=True), start=1):
        suffix, whose = (f"_{n}", f"Rotation {n}, layers {ranges(layers)}") if len(facts) > 1 else ("", "")
        for name, figure in (("wavelengths", wavelengths(fact, published)), ("decay", decay_curve(fact))):
            if whose:
                figure.suptitle(whose, fontsize="medium")
            figures[f"{name}{suffix}"] = figure
            words = caption(name, fact, published)
            captions[f"{name}{suffix}"] = f"{whose}. {words}" if whose else words
    pictures = {name: Picture(folder / f"{name}.png", captions[name]) for name in figures}
    write_together({pictures[name].path: png_bytes(figure, dpi=120) for name, figure in figures.items()})
    return pictures


def caption(name: str, facts: SpecFacts, published: bool = False) -> str:
    """One sentence on what to see in the figure of that name; nothing that is not drawn."""
    before = " Grey: before scaling, as the model was trained." if _moved(facts) else ""
    never = f" A pair above the {_line(facts, published)} never completes a turn inside it." if _seen(facts) else ""
    bound = "" if facts.spec.second else " Below: RoFormer's upper bound."
    return {
        "wavelengths": f"{_positions(facts)} per turn of each pair.{before}{never}",
        "decay": "Expected score of equal vectors by distance, between its lowest and highest value near there: it "
        f"falls, then wavers.{bound}",
    }[name]


def _positions(facts: SpecFacts) -> str:
    return "Positions" if facts.spec.coordinates == "integer" else "Units of a coordinate"


def _seen(facts: SpecFacts) -> int:
    """The positions that a pair can see: those of training, or of the window; 0 where that is unknown."""
    return min(facts.trained_length or 0, facts.window or facts.trained_length or 0)


def _line(facts: SpecFacts, published: bool) -> str:
    """What the line is called that stands at `_seen`. ``published``: the trained length is the published one."""
    if _seen(facts) != facts.trained_length:
        return "window"
    return "trained length" if trained_is_stated(facts, published) else "declared length"


def _moved(facts: SpecFacts) -> dict[int, float]:
    """Pair -> its wavelength before scaling, where that is another one."""
    before = {i: _seen(facts) / turns for i, turns in enumerate(facts.turns) if turns}
    return {i: wave for i, wave in before.items() if not math.isclose(wave, facts.wavelengths[i])}


def _figure(width: float = 8.0, height: float = 4.0, rows: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, sharex=True)
    for ax in [axes] if rows == 1 else axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def wavelengths(facts: SpecFacts, published: bool = False) -> Any:
    """Wavelength per pair on a log scale, coloured by what the scaling does to it, against the trained length."""
    figure, ax = _figure()
    seen, moved = _seen(facts), _moved(facts)
    if moved:
        ax.plot([*moved], [*moved.values()], ".", color="#aaaaaa", markersize=4, label="before scaling")
    for regime, (color, marker) in REGIMES.items():
        chosen = [i for i, r in enumerate(facts.regimes) if r == regime and math.isfinite(facts.wavelengths[i])]
        if chosen:
            label = f"{regime} ({len(chosen)} pairs)"
            ax.plot(chosen, [facts.wavelengths[i] for i in chosen], marker, color=color, markersize=4, label=label)
    stopped = facts.count("stopped")
    if stopped:
        ax.plot([], [], " ", label=f"stopped ({stopped} pairs, not drawn)")
    if seen:
        ax.axhline(seen, color="black", linestyle="--", linewidth=1)
        ax.annotate(f"{_line(facts, published)} {seen:,}", (0, seen), (0, 3), textcoords="offset points")
    ax.set(yscale="log", xlabel="pair", ylabel=f"wavelength ({unit(facts.spec)})", title="Wavelengths")
    ax.legend(frameon=False, loc="lower right")
    return figure


def decay_curve(facts: SpecFacts) -> Any:
    """Mean cosine by distance, along all axes together and along each alone; below it RoFormer's bound in its own unit.

    It wavers faster than a curve could show, so it is drawn as the band between its lowest and its highest values.
    The bound is one of rotations: it is left out where the two members of a pair rotate apart.
    """
    spec = facts.spec
    figure, panels = _figure(height=5.0, rows=1 if spec.second else 2)
    upper = panels if spec.second else panels[0]
    upper.axhline(0, color="black", linewidth=0.5)
    for axis in range(spec.axes.count) if spec.axes.count > 1 else ():
        label = f"axis {axis_names(spec.axes.count)[axis]} alone"
        _band(upper, envelope(facts, COLUMNS, axis), COLORS[(axis + 3) % len(COLORS)], label)
    _band(upper, envelope(facts, COLUMNS), COLORS[0], "all axes together")
    if spec.axes.count > 1:
        upper.legend(frameon=False, loc="lower left")
    if facts.first_negative is not None:
        upper.axvline(facts.first_negative, color=COLORS[2], linestyle="--", linewidth=1)
        label = f"first negative: {facts.first_negative:,} "
        upper.annotate(label, (facts.first_negative, 0.9), color=COLORS[2], ha="right")
    upper.set(xscale="log", ylabel="mean of cos(d θ)", title="Decay")
    lower = upper
    if not spec.second:
        lower = panels[1]
        _band(lower, envelope(facts, COLUMNS, of=bound), COLORS[3], "")
        lower.set(ylabel="RoFormer's bound", ylim=(0, None))
    lower.set(xscale="log", xlabel=f"relative distance d ({unit(spec)})")
    return figure


def _band(ax: Any, band: tuple[Any, Any, Any], color: str, label: str) -> None:
    starts, low, high = (t.numpy() for t in band)
    ax.fill_between(starts, low, high, color=color, alpha=0.35, linewidth=0, label=label)
    ax.plot(starts, low, color=color, linewidth=1)
    ax.plot(starts, high, color=color, linewidth=1)
