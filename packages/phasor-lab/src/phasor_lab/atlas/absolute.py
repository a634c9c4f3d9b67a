"""Plates of the encodings that are added to the tokens: sinusoidal and learned."""

from typing import Any

import torch
from torch import Tensor

from phasor.encodings import Learned, shift_matrix, sinusoids

from .paper import Paper

POSITIONS, STEPS = 48, 200  # of the learned table


def sinusoidal() -> Tensor:
    return sinusoids(torch.arange(128), 64)


def draw_sinusoidal(paper: Paper, table: Tensor) -> Any:
    figure, ax = paper.figure(height=3.6)
    paper.scale(figure, paper.heat(ax, table.numpy()), ax)
    ax.set(xlabel="channel", ylabel="position")
    return figure


def shift() -> tuple[Tensor, Tensor]:
    return shift_matrix(1, 16), shift_matrix(8, 16)


def draw_shift(paper: Paper, matrices: tuple[Tensor, Tensor]) -> Any:
    figure, axes = paper.figure(1, 2, height=3.0, sharey=True)
    for ax, matrix, k in zip(axes, matrices, (1, 8), strict=True):
        image = paper.heat(ax, matrix.numpy(), aspect="equal", vmin=-1, vmax=1)
        ax.set(title=f"by {k}", xlabel="channel", xticks=range(0, 16, 5), yticks=range(0, 16, 5))
    axes[0].set_ylabel("channel")
    paper.scale(figure, image, axes)
    return figure


def learned() -> tuple[Tensor, Tensor]:
    return trained_table(steps=0), trained_table(steps=STEPS)


def trained_table(steps: int) -> Tensor:
    """A table ``[48, 24]`` after so many steps of learning to attend from each position to the one before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        encoding = Learned(POSITIONS, 24)
        query, key = (torch.nn.Linear(24, 24, bias=False) for _ in range(2))
    weights = [*encoding.parameters(), *query.parameters(), *key.parameters()]
    optimizer = torch.optim.Adam(weights, lr=0.01)
    before = torch.arange(POSITIONS - 1)
    for _ in range(steps):
        table = encoding.table.weight
        scores = query(table[1:]) @ key(table).T
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(scores, before).backward()
        optimizer.step()
    return encoding.table.weight.detach()


def draw_learned(paper: Paper, tables: tuple[Tensor, Tensor]) -> Any:
    figure, axes = paper.figure(1, 2, height=3.4, sharey=True)
    for ax, table, title in zip(axes, tables, ("as it begins", f"after {STEPS} steps"), strict=True):
        paper.scale(figure, paper.heat(ax, table.numpy()), ax)
        ax.set(title=title, xlabel="channel")
    axes[0].set_ylabel("position")
    return figure
