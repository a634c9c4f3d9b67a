"""The pictures of an encoding, with matplotlib: wavelengths, decay, angles, axes, layers. Each says what it shows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from phasor.models.configs import ModelRotary
from phasor.models.published_lengths import published_length
from phasor.rotary.rotation import Rotation
from phasor.support.number_text import ranges
from phasor.support.png_bytes import png_bytes
from phasor.support.whole_files import write_together
from phasor.tools.inspect.numbers import SpecFacts, bound, envelope
from phasor.tools.inspect.rows import axis_names, trained_is_stated, unit

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

    Wavelengths, decay and angles are drawn for each distinct rotation; the axis strip only if there are several axes,
    the layer strip only if layers differ. All of them are written or none: ``OSError`` names the file that failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    captions: dict[str, str] = {}
    published = published_length(model) is not None
    for n, (fact, layers) in enumerate(zip(facts, model.distinct.values(), strict=True), start=1):
        suffix, whose = (f"_{n}", f"Rotation {n}, layers {ranges(layers)}") if len(facts) > 1 else ("", "")
        for name, figure in _of_rotation(fact, published).items():
            if whose:
                figure.suptitle(whose, fontsize="medium")
            figures[f"{name}{suffix}"] = figure
            words = caption(name, fact, published)
            captions[f"{name}{suffix}"] = f"{whose}. {words}" if whose else words
    if len(set(model.layers)) > 1:
        figures["layers"], captions["layers"] = layer_strip(model), LAYERS
    pictures = {name: Picture(folder / f"{name}.png", captions[name]) for name in figures}
    write_together({pictures[name].path: png_bytes(figure, dpi=120) for name, figure in figures.items()})
    return pictures


def _of_rotation(facts: SpecFacts, published: bool) -> dict[str, Any]:
    figures = {"wavelengths": wavelengths(facts, published), "decay": decay_curve(facts), "angles": angle_map(facts)}
    if facts.spec.axes.count > 1:
        figures["axes"] = axis_strip(facts)
    return figures


LAYERS = "Which rotation each layer uses; layers without one see no positions."


def caption(name: str, facts: SpecFacts, published: bool = False) -> str:
    """One sentence on what to see in the figure of that name; nothing that is not drawn."""
    before = " Grey: before scaling, as the model was trained." if _moved(facts) else ""
    never = f" A pair above the {_line(facts, published)} never completes a turn inside it." if _seen(facts) else ""
    bound = "" if facts.spec.second else " Below: RoFormer's upper bound."
    return {
        "wavelengths": f"{_positions(facts)} per turn of each pair.{before}{never}",
        "decay": "Expected score of equal vectors by distance, between its lowest and highest value near there: it "
        f"falls, then wavers.{bound}",
        "angles": "The cosine of each pair's angle at the first positions: fast pairs make stripes, slow pairs hardly "
        "change.",
        "axes": "Which coordinate of a position rotates which pair.",
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


def angle_map(facts: SpecFacts, columns: int = 512) -> Any:
    """cos of the angle of every pair (of its first member) at the first positions, the same on all axes."""
    spec = facts.spec
    figure, ax = _figure()
    at = torch.arange(min(columns, facts.max_position))
    if spec.coordinates == "real":
        at = torch.arange(columns) / 8
    extent = (0.0, float(at[-1]) + float(at[1] if len(at) > 1 else 1), spec.pairs - 0.5, -0.5)
    if spec.axes.count > 1:
        at = at.expand(spec.axes.count, -1)
    cos = Rotation.at(spec.replace(learned=False), at, facts.seq_len or 1).cos / facts.attention_factor
    image = ax.imshow(
        cos.T.numpy(), aspect="auto", cmap="cividis", vmin=-1, vmax=1, interpolation="nearest", extent=extent
    )
    figure.colorbar(image, ax=ax, label="cos(angle)")
    where = "position" if spec.axes.count == 1 else "position on every axis"
    ax.set(xlabel=f"{where} ({unit(spec)})", ylabel="pair", title="Cosine of the angle")
    return figure


def axis_strip(facts: SpecFacts) -> Any:
    """The axis that rotates each pair, as a coloured strip."""
    names = ("time", "height", "width") if facts.spec.axes.count == 3 else None
    owner = facts.spec.axes.axis_of_pair(facts.spec.pairs)
    labels = [names[a] if names else f"axis {a}" for a in range(facts.spec.axes.count)]
    return _strip(owner, labels, "pair", "Axes")


def layer_strip(model: ModelRotary) -> Any:
    """The rotation of each layer, as a coloured strip."""
    specs = list(model.distinct)
    owner = [specs.index(layer) if layer is not None else len(specs) for layer in model.layers]
    labels = [f"rotation {n}" for n in range(1, len(specs) + 1)] + ["no rotation"]
    return _strip(owner, labels, "layer", "Layers")


def _strip(owner: Sequence[int], labels: list[str], xlabel: str, title: str) -> Any:
    figure, ax = _figure(height=1.8)
    for value, label in enumerate(labels):
        chosen = [i for i, o in enumerate(owner) if o == value]
        if chosen:
            color = COLORS[-1] if label == "no rotation" else COLORS[value]
            bars = ax.bar(chosen, 1 - 0.18 * value, width=0.9, color=color, label=f"{label} ({len(chosen)})")
            bars[0].set_zorder(2)
    ax.set(xlabel=xlabel, yticks=[], title=title, xlim=(-0.7, len(owner) - 0.3))
    ax.spines["left"].set_visible(False)
    figure.legend(loc="outside right upper", frameon=False)
    return figure
