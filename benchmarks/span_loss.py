"""Time and memory of one training step of the span heads: the published dense loss and ours, inside one run.

    python benchmarks/span_loss.py

A step is projection, rotation, scores, masks, loss and backward pass; the encoder is left out. Times are medians of
interleaved rounds. Memory is the growth of the process's resident peak over one step, in a fresh process (Linux).
The published step is that of the PyTorch ports: masks of 1e12, dense labels (made beforehand), loss of kexue.fm 7359.
"""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from timing import medians, race
from torch import Tensor

from phasor.encodings.heads import (
    EfficientGlobalPointer,
    GlobalPointer,
    SpanHead,
    multilabel_cross_entropy,
    sparse_multilabel_cross_entropy,
)

HEADS = {"GlobalPointer": GlobalPointer, "Efficient": EfficientGlobalPointer}
STEPS = ["published", "dense", "sparse", "head.loss"]
BATCH, TYPES = 4, 10


def turned(x: Tensor, dim: int) -> Tensor:
    n, d = x.shape[dim], x.shape[-1]
    angles = torch.arange(n).float()[:, None] * 10000.0 ** (-torch.arange(0, d, 2).float() / d)
    shape = [n if i == dim else 1 for i in range(x.ndim - 1)] + [d]
    cos, sin = (t.repeat_interleave(2, -1).view(shape) for t in (angles.cos(), angles.sin()))
    return x * cos + torch.stack((-x[..., 1::2], x[..., ::2]), -1).reshape(x.shape) * sin


def published_scores(head: SpanHead, hidden: Tensor, mask: Tensor) -> Tensor:
    x, d = head.dense(hidden), head.head_dim
    if isinstance(head, EfficientGlobalPointer):
        logits = torch.einsum("bmd,bnd->bmn", turned(x[..., :d], 1), turned(x[..., d:], 1)) / d**0.5
        bias = torch.stack(head.ends(x).chunk(head.num_types, -1), -2).transpose(1, 2) / 2
        logits = logits.unsqueeze(1) + bias[..., :1] + bias[..., 1:].transpose(2, 3)
    else:
        x = torch.stack(x.chunk(head.num_types, -1), -2)
        logits = torch.einsum("bmhd,bnhd->bhmn", turned(x[..., :d], 1), turned(x[..., d:], 1)) / d**0.5
    logits = logits.masked_fill(mask[:, None, :, None] == 0, -1e12).masked_fill(mask[:, None, None, :] == 0, -1e12)
    return logits - torch.tril(torch.ones_like(logits), -1) * 1e12


def published_loss(scores: Tensor, labels: Tensor) -> Tensor:
    scores = (1 - 2 * labels) * scores
    zero = torch.zeros_like(scores[..., :1])
    negative = torch.cat((scores - labels * 1e12, zero), -1)
    positive = torch.cat((scores - (1 - labels) * 1e12, zero), -1)
    return torch.logsumexp(negative, -1) + torch.logsumexp(positive, -1)


def steps(kind: str, length: int, wanted: list[str]) -> dict[str, Callable[[], Tensor]]:
    """One training step each: forward and backward; they return the loss."""
    torch.manual_seed(0)
    batch, types = BATCH, TYPES
    head = HEADS[kind](768, types)
    hidden = torch.randn(batch, length, 768, requires_grad=True)
    mask = (torch.arange(length) < torch.linspace(length, length // 2, batch)[:, None]).long()
    spans = torch.stack(  # three short entities a sentence
        [torch.tensor([b, 3 * b % types, s, s + 2]) for b in range(batch) for s in (1, length // 4, length // 3)]
    )
    cells = torch.full((batch, types, 3), -1)
    cells[spans[:, 0], spans[:, 1]] = (spans[:, 2] * length + spans[:, 3]).view(batch, 3).repeat_interleave(3, 0)

    def labels(dtype: torch.dtype) -> Tensor:
        t = torch.zeros(batch, types, length, length, dtype=dtype)
        t[tuple(spans.T)] = 1
        return t.flatten(2)

    makers = {"published": lambda: labels(torch.float32), "dense": lambda: labels(torch.bool)}
    truth = {name: make() for name, make in makers.items() if name in wanted}
    losses = {
        "published": lambda: published_loss(published_scores(head, hidden, mask).flatten(2), truth["published"]).mean(),
        "dense": lambda: multilabel_cross_entropy(head(hidden, mask).flatten(2), truth["dense"]).mean(),
        "sparse": lambda: sparse_multilabel_cross_entropy(head(hidden, mask).flatten(2), cells).mean(),
        "head.loss": lambda: head.loss(hidden, spans, mask),
    }

    def step(name: str) -> Tensor:
        loss = losses[name]()
        loss.backward()
        return loss.detach()

    return {name: lambda name=name: step(name) for name in wanted}


def resident(field: str) -> int:
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1])


def print_peak(kind: str, length: int, name: str) -> None:
    steps(kind, 16, [name])[name]()  # the library's own first allocations
    step = steps(kind, length, [name])[name]
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    step()
    print((resident("VmHWM") - before) / 1024)


def peak(kind: str, length: int, name: str) -> float:
    """MiB that one step adds to a process of its own at its peak."""
    command = [sys.executable, __file__, kind, str(length), name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(*arguments: str) -> None:
    torch.set_num_threads(1)
    if arguments:
        kind, length, name = arguments
        return print_peak(kind, int(length), name)
    print(f"torch {torch.__version__}, 1 thread(s), float32, batch {BATCH}, {TYPES} types: forward and backward\n")
    print("| head | n | " + " | ".join(f"{name}, ms" for name in STEPS), end="")
    print(" | published / head.loss | " + " | ".join(f"{name}, MiB" for name in STEPS) + " |")
    print("|---|---|" + "---|" * (2 * len(STEPS) + 1))
    for kind, length in ((kind, length) for kind in HEADS for length in (128, 256, 512)):
        calls = steps(kind, length, STEPS)
        losses = [float(call()) for call in calls.values()]
        assert max(losses) - min(losses) < 1e-4 * max(losses), losses
        spent = medians(race(calls, rounds=11, warm_up=1, clock=time.perf_counter))
        columns = [kind, str(length), *(f"{1e3 * spent[name]:.0f}" for name in STEPS)]
        columns += [f"{spent['published'] / spent['head.loss']:.1f}"]
        columns += [f"{peak(kind, length, name):.0f}" for name in STEPS]
        print("| " + " | ".join(columns) + " |", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
