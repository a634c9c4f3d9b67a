"""The picture of a rotation, with matplotlib: the wavelength of each pair. It says what it shows."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from phasor.models.configs import ModelRotary
from phasor.models.published_lengths import published_length
from phasor.support.number_text import ranges
from phasor.support.whole_files import write_together
from phasor.tools.inspect.numbers import SpecFacts
from phasor.tools.inspect.rows import trained_is_stated, unit

from ..run_folder.pictures import png_bytes

# Okabe-Ito: told apart with any colour vision. Regimes also differ in their marker.
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


def save_figures(model: ModelRotary, facts: Sequence[SpecFacts], folder: Path) -> list[Picture]:
    """Draw the wavelengths of each distinct rotation of a model into ``folder`` as PNG, in the order of its layers.

    All of them are written or none: ``OSError`` names the file that failed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pictures, figures = [], []
    published = published_length(model) is not None
    for n, (fact, layers) in enumerate(zip(facts, model.distinct.values(), strict=True), start=1):
        suffix, whose = (f"_{n}", f"Rotation {n}, layers {ranges(layers)}. ") if len(facts) > 1 else ("", "")
        pictures.append(Picture(folder / f"wavelengths{suffix}.png", whose + caption(fact, published)))
        figures.append(wavelengths(fact, published))
    write_together({one.path: png_bytes(figure, dpi=120) for one, figure in zip(pictures, figures, strict=True)})
    return pictures


def caption(facts: SpecFacts, published: bool = False) -> str:
    """What to see in the figure; nothing that is not drawn."""
    before = " Grey: before scaling, as the model was trained." if _moved(facts) else ""
    never = f" A pair above the {_line(facts, published)} never completes a turn inside it." if _seen(facts) else ""
    return f"{_positions(facts)} per turn of each pair.{before}{never}"


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


def wavelengths(facts: SpecFacts, published: bool = False) -> Any:
    """Wavelength per pair on a log scale, coloured by what the scaling does to it, against the trained length."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.0), layout="constrained")
    ax = figure.subplots()
    ax.spines[["top", "right"]].set_visible(False)
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
