"""Plates of the rotation: in the plane, in polar form, as phases, and what it does at a distance."""

import cmath
import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from phasor import RotarySpec, Rotation
from phasor.matrix import complex_form
from phasor.tools.inspect.curves import decay, decay_bound

from .paper import SIZE, Paper

HEAD = RotarySpec(head_dim=128)
PAIR = RotarySpec(head_dim=2, frequencies=(math.pi / 8,))  # a sixteenth of a turn for each position
QUERY, KEY = 0.9 + 0.35j, 0.35 + 0.6j
BEHIND = 3  # positions of the key behind the query
SHOWN = (0, 8, 16, 24)  # pairs of a head of 128
TURNS = 24  # positions of the polar plate
BASES = (10_000.0, 500_000.0, 10_000_000.0)
TRAINED = 4096
FAR = 16_384


def plane() -> tuple[Tensor, Tensor]:
    return (
        QUERY * complex_form(Rotation.at(PAIR, torch.arange(8)))[:, 0],
        KEY * complex_form(Rotation.at(PAIR, torch.arange(8) - BEHIND))[:, 0],
    )


def draw_plane(paper: Paper, turned: tuple[Tensor, Tensor]) -> Any:
    figure, axes = paper.figure(1, 2, height=2.7, sharex=True, sharey=True)
    for ax, shown in zip(axes, (range(8), (0, 5)), strict=True):
        ax.axhline(0, color=paper.faint, linewidth=0.6)
        ax.axvline(0, color=paper.faint, linewidth=0.6)
        for numbers, color, name in zip(turned, paper.lines, ("query", "key"), strict=False):
            for m in shown:
                tip, alpha = (float(numbers[m].real), float(numbers[m].imag)), 1 if len(shown) == 2 else 0.35 + 0.08 * m
                ax.annotate("", tip, (0, 0), arrowprops={"arrowstyle": "->", "color": color, "lw": 1.8, "alpha": alpha})
                if len(shown) == 2 or name == "query":
                    ax.annotate(
                        str(m - (BEHIND if name == "key" else 0)), (1.13 * tip[0], 1.13 * tip[1]), color=color,
                        ha="center", va="center", fontsize=SIZE - 2,
                    )  # fmt: skip
            ax.plot([], [], color=color, label=name)
        ax.set(xlim=(-1.25, 1.25), ylim=(-0.4, 1.25), aspect="equal", xlabel="first channel")
    axes[0].set(title="positions 0 to 7", ylabel="second channel")
    axes[1].set_title(f"a key {BEHIND} behind, twice")
    paper.legend(figure, axes[1], loc="outside lower center", ncols=2)
    return figure


def polar() -> Tensor:
    return torch.outer(torch.linspace(0, TURNS, 20 * TURNS + 1), HEAD.inv_freq()[list(SHOWN)])


def wave(angles: Tensor) -> Tensor:
    """What a pair adds to the score of `QUERY` and `KEY` when it has turned by these angles (equation 12)."""
    return abs(QUERY) * abs(KEY) * (angles + cmath.phase(QUERY) - cmath.phase(KEY)).cos()


def draw_polar(paper: Paper, angles: Tensor) -> Any:
    at = torch.linspace(0, TURNS, len(angles))
    figure, (left, right) = paper.figure(1, 2, height=3.4)
    left.remove()
    left = figure.add_subplot(1, 2, 1, projection="polar")
    paper.dress(left)
    left.grid(color=paper.faint, linewidth=0.4)
    for pair, turned, color in zip(SHOWN, angles.T, paper.lines, strict=False):
        left.plot(turned, at, color=color, linewidth=1.3)
        left.plot(turned[::20], at[::20], ".", color=color, markersize=4)
        right.plot(at, wave(turned), color=color, linewidth=1.5, label=f"pair {pair}")
    left.set_rticks([8, 16, 24])
    left.set_rlabel_position(305)
    left.set_thetagrids([0, 90, 180, 270])
    left.set_title("angle, by position", pad=12)
    right.set(title="score, by distance", xlabel="distance")
    paper.legend(figure, loc="outside lower center", ncols=4, handlelength=1.2)
    return figure


def phases() -> tuple[Tensor, list[Tensor]]:
    return (
        Rotation.at(HEAD, torch.arange(256)).cos.T,
        [2 * math.pi / HEAD.replace(base=base).inv_freq() for base in BASES],
    )


def draw_phases(paper: Paper, values: tuple[Tensor, list[Tensor]]) -> Any:
    cos, wavelengths = values
    figure, axes = paper.figure(2, 1, height=5.4)
    paper.scale(figure, paper.heat(axes[0], cos.numpy()), axes[0], "cosine")
    axes[0].set(xlabel="position", ylabel="pair")
    for base, line, color in zip(BASES, wavelengths, paper.lines, strict=False):
        axes[1].plot(line.numpy(), color=color, label=f"base {base:,.0f}")
    axes[1].axhline(TRAINED, color=paper.ink, linestyle=":", linewidth=1)
    axes[1].set(yscale="log", xlabel="pair", ylabel="positions per turn")
    paper.legend(axes[1], loc="upper left")
    return figure


def decays() -> tuple[Tensor, Tensor, Tensor]:
    return (
        decay(HEAD, torch.arange(FAR)),
        decay_bound(HEAD, torch.arange(FAR)),
        integral(torch.arange(FAR), base=10_000.0),
    )


def integral(distances: Tensor, base: float) -> Tensor:
    """``G(d) = (Ci(d) - Ci(d / base)) / ln base``, the mean cosine of a ladder without gaps (equation 24), ``[S]``.

    >>> [round(g, 3) for g in integral(torch.tensor([0, 64, 1024]), 10_000.0).tolist()]
    [1.0, 0.487, 0.185]
    """
    mean = (cosine_integral(distances.double()) - cosine_integral(distances / base)) / math.log(base)
    return torch.where(distances == 0, 1.0, mean)


def cosine_integral(x: Tensor) -> Tensor:
    """``Ci(x)`` for x > 0 in float64, within 1e-7: its power series up to 20, its asymptotic one beyond.

    Source: Abramowitz and Stegun, 5.2.16, 5.2.8, 5.2.34 and 5.2.35.

    >>> round(float(cosine_integral(torch.tensor(1.0))), 6)
    0.337404
    """
    x = x.double()
    near, far = x.clamp(max=20.0), x.clamp(min=20.0)
    series = 0.5772156649015329 + near.log()
    for k in range(1, 40):
        series += (-1) ** k * (near ** (2 * k)) / float(2 * k * math.factorial(2 * k))
    f, g = (sum((-1) ** k * math.factorial(2 * k + n) / far ** (2 * k + n + 1) for k in range(8)) for n in (0, 1))
    return torch.where(x <= 20, series, f * far.sin() - g * far.cos())


def draw_decays(paper: Paper, values: tuple[Tensor, Tensor, Tensor]) -> Any:
    mean, bound, smooth = values
    figure, axes = paper.figure(2, 1, height=4.6, sharex=True)
    axes[0].axhline(0, color=paper.faint, linewidth=0.8)
    for ax, curve, color, name in zip(axes, (mean, bound), paper.lines, ("mean cosine", "bound"), strict=False):
        starts, low, high = band(curve)
        ax.fill_between(starts, low, high, step="post", color=color, alpha=0.75, linewidth=0.8, label=name)
    axes[0].plot(range(1, FAR), smooth[1:].numpy(), color=paper.lines[2], linewidth=1.4, label="integral")
    axes[0].set(xscale="log", ylabel="mean of cos(d θ)")
    axes[1].set(xscale="log", xlabel="distance", ylabel="bound", ylim=(0, None), xlim=(1, FAR))
    paper.legend(axes[0], loc="lower left")
    return figure


def band(curve: Tensor, columns: int = 220) -> tuple[list[int], list[float], list[float]]:
    """First distance, lowest and highest value of equal steps on a logarithmic axis, from distance 1 on.

    >>> band(torch.tensor([9.0, 1.0, 3.0, 2.0, 5.0]), columns=2)
    ([1, 2], [1.0, 2.0], [1.0, 5.0])
    """
    edges = sorted({round(len(curve) ** (i / columns)) for i in range(columns + 1)})
    pieces = [curve[a:b] for a, b in pairwise(edges)]
    return edges[:-1], [float(p.min()) for p in pieces], [float(p.max()) for p in pieces]
