"""Plates of the encodings that add a number to each score: ALiBi and T5."""

from typing import Any

import torch
from torch import Tensor

from phasor.encodings import ALiBi, Encoding, T5Bias, t5_bucket

from .paper import Paper

HEADS, WIDTH = 8, 32
REACH = 64  # distances that are drawn


def bias_of(encoding: Encoding, heads: int, last: int) -> Tensor:
    """What an encoding adds to the scores at distances 0 to ``last``, ``[heads, S]``."""
    q, keys = torch.zeros(1, heads, 1, WIDTH), torch.zeros(1, heads, last + 1, WIDTH)
    with torch.no_grad():
        bias = encoding.bias(q, keys, torch.tensor([last]), last - torch.arange(last + 1), scale=WIDTH**-0.5)
    assert bias is not None
    return bias.expand(1, heads, 1, last + 1)[0, :, 0]


def made_up(kind: type[Encoding], *args: Any, spread: float = 1.0, **more: Any) -> Encoding:
    """An encoding with normal weights of a fixed seed, where nobody has trained any."""
    encoding = kind(*args, **more)
    random = torch.Generator().manual_seed(0)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=spread, generator=random)
    return encoding


def alibi() -> Tensor:
    return bias_of(ALiBi(HEADS), HEADS, REACH)


def draw_alibi(paper: Paper, bias: Tensor) -> Any:
    figure, ax = paper.figure(height=3.6)
    for h, line in enumerate(bias):
        ax.plot(line.numpy(), color=paper.lines[h % 6], linestyle="-" if h < 6 else "--", label=f"head {h}")
    ax.set(xlabel="distance", ylabel="added to the score", ylim=(-16, 0.5))
    paper.legend(figure, loc="outside lower center", ncols=4)
    return figure


def t5() -> tuple[Tensor, Tensor]:
    return (
        t5_bucket(-torch.arange(161), bidirectional=False),
        bias_of(made_up(T5Bias, 2, bidirectional=False), 2, 160),
    )


def draw_t5(paper: Paper, values: tuple[Tensor, Tensor]) -> Any:
    buckets, bias = values
    figure, axes = paper.figure(1, 2, height=3.2)
    axes[0].step(range(161), buckets.numpy(), where="post", color=paper.lines[0])
    axes[0].set(title="bucket", xlabel="distance")
    for h, line in enumerate(bias):
        axes[1].step(range(161), line.numpy(), where="post", color=paper.lines[h + 1], label=f"head {h}", linewidth=1.3)
    axes[1].set(title="added to the score", xlabel="distance")
    paper.legend(figure, loc="outside lower right", ncols=2)
    return figure
