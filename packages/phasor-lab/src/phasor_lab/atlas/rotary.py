"""Plates of the rotation: in the plane, as phases, and what it does at a distance."""

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


def decays() -> tuple[Tensor, Tensor]:
    return decay(HEAD, torch.arange(FAR)), decay_bound(HEAD, torch.arange(FAR))


def draw_decays(paper: Paper, values: tuple[Tensor, Tensor]) -> Any:
    figure, axes = paper.figure(2, 1, height=4.6, sharex=True)
    axes[0].axhline(0, color=paper.faint, linewidth=0.8)
    for ax, curve, color, name in zip(axes, values, paper.lines, ("mean cosine", "bound"), strict=False):
        starts, low, high = band(curve)
        ax.fill_between(starts, low, high, step="post", color=color, alpha=0.75, linewidth=0.8, label=name)
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
