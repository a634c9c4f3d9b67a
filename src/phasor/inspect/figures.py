"""The pictures of an encoding, with matplotlib: wavelengths, decay, angles, axes, layers. Each says what it shows."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ..configs import ModelRotary
from ..rotation import Rotation
from .numbers import SpecFacts, decay, decay_bound

# Okabe-Ito: told apart with any colour vision. Regimes also differ in their marker.
COLORS = ("#0072B2", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#F0E442", "#999999")
REGIMES = {
    "kept": ("#0072B2", "o"),
    "blended": ("#E69F00", "^"),
    "slowed": ("#D55E00", "s"),
    "stopped": ("#999999", "x"),
}


def save_figures(model: ModelRotary, facts: Sequence[SpecFacts], folder: Path) -> dict[str, Path]:
    """Draw every figure of a model into ``folder`` as PNG; returns ``{name: path}``, names in reading order.

    Wavelengths, decay and angles are drawn for each distinct rotation; the axis strip only if there are several axes,
    the layer strip only if layers differ.
    """
    folder.mkdir(parents=True, exist_ok=True)
    figures: dict[str, Any] = {}
    for n, fact in enumerate(facts, start=1):
        suffix = f"_{n}" if len(facts) > 1 else ""
        figures[f"wavelengths{suffix}"] = wavelengths(fact)
        figures[f"decay{suffix}"] = decay_curve(fact)
        figures[f"angles{suffix}"] = angle_map(fact)
        if fact.spec.axes.count > 1:
            figures[f"axes{suffix}"] = axis_strip(fact)
    if len(set(model.layers)) > 1:
        figures["layers"] = layer_strip(model)
    paths = {name: folder / f"{name}.png" for name in figures}
    for name, figure in figures.items():
        figure.savefig(paths[name], dpi=120)
    return paths


def caption(name: str) -> str:
    """One sentence on what to see in the figure of that name."""
    return {
        "wavelengths": "Tokens per turn of each pair: pairs above the dashed line never complete a turn in training.",
        "decay": "Expected score of equal vectors by distance: it falls, then wavers; below, an upper bound.",
        "angles": "Angle of every pair at every position: fast pairs stripe, slow pairs barely move.",
        "axes": "Which coordinate of a position turns which pair.",
        "layers": "Which rotation each layer uses; layers without one see no positions.",
    }[name.split("_")[0]]


def _figure(width: float = 8.0, height: float = 4.0, rows: int = 1) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, sharex=True)
    for ax in [axes] if rows == 1 else axes:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def wavelengths(facts: SpecFacts) -> Any:
    """Wavelength per pair on a log scale, coloured by what the scaling does to it, against the trained length."""
    figure, ax = _figure()
    for regime, (color, marker) in REGIMES.items():
        chosen = [i for i, r in enumerate(facts.regimes) if r == regime and math.isfinite(facts.wavelengths[i])]
        if chosen:
            label = f"{regime} ({len(chosen)} pairs)"
            ax.plot(chosen, [facts.wavelengths[i] for i in chosen], marker, color=color, markersize=4, label=label)
    stopped = facts.count("stopped")
    if stopped:
        ax.plot([], [], " ", label=f"stopped ({stopped} pairs, not drawn)")
    ax.axhline(facts.trained_length, color="black", linestyle="--", linewidth=1)
    ax.annotate(
        f"trained length {facts.trained_length:,}", (0, facts.trained_length), (0, 3), textcoords="offset points"
    )
    ax.set(yscale="log", xlabel="pair", ylabel="wavelength (tokens per turn)", title="Wavelengths")
    ax.legend(frameon=False, loc="lower right")
    return figure


def decay_curve(facts: SpecFacts) -> Any:
    """Mean cosine by relative distance, and below it RoFormer's bound in its own unit."""
    figure, (upper, lower) = _figure(height=5.0, rows=2)
    last = max(2, facts.max_position - 1)
    distances = torch.logspace(0, math.log10(last), 600, dtype=torch.float64).round().long().unique()
    upper.axhline(0, color="black", linewidth=0.5)
    upper.plot(distances.numpy(), decay(facts.spec, distances, facts.seq_len).numpy(), color=COLORS[0])
    if facts.first_negative is not None:
        upper.axvline(facts.first_negative, color=COLORS[2], linestyle="--", linewidth=1)
        label = f"first negative: {facts.first_negative:,} "
        upper.annotate(label, (facts.first_negative, 0.9), color=COLORS[2], ha="right")
    lower.plot(distances.numpy(), decay_bound(facts.spec, distances, facts.seq_len).numpy(), color=COLORS[3])
    upper.set(xscale="log", ylabel="mean of cos(d θ)", title="Decay")
    lower.set(xscale="log", xlabel="relative distance d (tokens)", ylabel="RoFormer's bound", ylim=(0, None))
    return figure


def angle_map(facts: SpecFacts, columns: int = 512) -> Any:
    """cos of the angle of every pair at the first positions."""
    figure, ax = _figure()
    at = torch.arange(min(columns, facts.max_position))
    if facts.spec.axes.count > 1:
        at = at.unsqueeze(0).expand(facts.spec.axes.count, -1)
    cos = Rotation.at(facts.spec, at, facts.seq_len or 1).cos / facts.attention_factor
    image = ax.imshow(cos.T.numpy(), aspect="auto", cmap="cividis", vmin=-1, vmax=1, interpolation="nearest")
    figure.colorbar(image, ax=ax, label="cos(angle)")
    ax.set(xlabel="position (tokens)", ylabel="pair", title="Angles")
    return figure


def axis_strip(facts: SpecFacts) -> Any:
    """The axis that turns each pair, as a coloured strip."""
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
