"""The plate that has every encoding on it: what each adds to the score of every query and key."""

from typing import Any

import torch
from torch import Tensor

from phasor.encodings import ALiBi, Encoding, Shaw, T5Bias, TransformerXL, sinusoids
from phasor.tools.inspect.curves import decay

from .absolute import POSITIONS, STEPS, trained_table
from .paper import Paper
from .relative import WIDTH, made_up
from .rotary import HEAD


def values() -> dict[str, Tensor]:
    return {
        "none": torch.zeros(POSITIONS, POSITIONS),
        "sinusoidal": (sinusoids(AT, 64) @ sinusoids(AT, 64).T),
        "learned": trained_table(STEPS) @ trained_table(STEPS).T,
        "rotary": decay(HEAD, AT[:, None] - AT),
        "ALiBi": matrix(ALiBi(8, symmetric=True), 8),
        "T5": matrix(made_up(T5Bias, 1, bidirectional=True), 1),
        "Shaw": matrix(made_up(Shaw, WIDTH, 16), 1),
        "Transformer-XL": matrix(made_up(TransformerXL, 1, WIDTH, 64, spread=0.15), 1),
    }


AT = torch.arange(POSITIONS)


def matrix(encoding: Encoding, heads: int) -> Tensor:
    """What an encoding adds in its last head, the query the same in all rows, ``[48, 48]``."""
    random = torch.Generator().manual_seed(1)
    q = torch.randn(1, 1, 1, WIDTH, generator=random).expand(1, heads, POSITIONS, WIDTH)
    with torch.no_grad():
        bias = encoding.bias(q, torch.zeros(1, heads, POSITIONS, WIDTH), AT, AT, scale=WIDTH**-0.5)
    assert bias is not None
    return bias.reshape(-1, POSITIONS, POSITIONS)[min(heads, 3) - 1]


def draw(paper: Paper, curves: dict[str, Tensor]) -> Any:
    figure, axes = paper.figure(4, 2, height=9.6, sharex=True, sharey=True)
    for ax, (name, scores) in zip(axes.flat, curves.items(), strict=True):
        paper.scale(figure, paper.heat(ax, scores.numpy(), aspect="equal"), ax)
        ax.set_title(name)
    for ax in axes[-1]:
        ax.set_xlabel("key")
    for ax in axes[:, 0]:
        ax.set_ylabel("query")
    return figure
