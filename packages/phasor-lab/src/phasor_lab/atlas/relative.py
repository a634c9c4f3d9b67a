"""Plates of the encodings that add something to each score: ALiBi, T5, Shaw, Transformer-XL."""

from typing import Any

import torch
from torch import Tensor

from phasor.encodings import ALiBi, Encoding, Shaw, T5Bias, TransformerXL, t5_bucket

from .paper import Paper

HEADS, WIDTH = 8, 32
REACH = 64  # distances that are drawn


def bias_of(encoding: Encoding, heads: int, last: int, queries: int = 1) -> Tensor:
    """What an encoding adds to the scores at distances 0 to ``last``, for made-up queries, ``[queries, heads, S]``."""
    q = torch.randn(queries, heads, 1, WIDTH, generator=torch.Generator().manual_seed(1))
    keys = torch.zeros(queries, heads, last + 1, WIDTH)
    with torch.no_grad():
        bias = encoding.bias(q, keys, torch.tensor([last]), last - torch.arange(last + 1), scale=WIDTH**-0.5)
    assert bias is not None
    return bias.expand(queries, heads, 1, last + 1)[:, :, 0]


def made_up(kind: type[Encoding], *args: Any, spread: float = 1.0, **more: Any) -> Encoding:
    """An encoding with normal weights of a fixed seed, where nobody has trained any."""
    encoding = kind(*args, **more)
    random = torch.Generator().manual_seed(0)
    for parameter in encoding.parameters():
        torch.nn.init.normal_(parameter, std=spread, generator=random)
    return encoding


def alibi() -> Tensor:
    return bias_of(ALiBi(HEADS), HEADS, REACH)[0]


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
        bias_of(made_up(T5Bias, 2, bidirectional=False), 2, 160)[0],
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


def shaw() -> Tensor:
    return bias_of(made_up(Shaw, WIDTH, 16), 1, REACH, queries=3)[:, 0]


def transformer_xl() -> Tensor:
    return bias_of(made_up(TransformerXL, 1, WIDTH, 64, spread=0.15), 1, 4 * REACH, queries=3)[:, 0]


def draw_queries(paper: Paper, bias: Tensor, end: int | None = None) -> Any:
    figure, ax = paper.figure(height=3.0)
    ax.axhline(0, color=paper.faint, linewidth=0.8)
    for n, (line, color) in enumerate(zip(bias, paper.lines, strict=False)):
        ax.plot(line.numpy(), color=color, linewidth=1.5, label=f"query {n + 1}")
    if end is not None:
        ax.axvline(end, color=paper.ink, linestyle=":", linewidth=1)
    ax.set(xlabel="distance", ylabel="added to the score")
    paper.legend(ax, loc="upper right", ncols=3, handlelength=1)
    return figure


def draw_shaw(paper: Paper, bias: Tensor) -> Any:
    return draw_queries(paper, bias, end=16)


def draw_transformer_xl(paper: Paper, bias: Tensor) -> Any:
    return draw_queries(paper, bias)
