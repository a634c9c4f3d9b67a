"""The heads and losses once more, in float64 with loops and complex numbers: nothing of the library but its weights."""

import cmath
import math

import numpy as np
import torch
from torch import Tensor, nn

from phasor.encodings.heads import GlobalPointer, SpanHead

EPS = torch.finfo(torch.float64).eps


def weights(layer: nn.Linear) -> tuple[np.ndarray, np.ndarray]:
    return layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy()


def factors(head: SpanHead, hidden: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """q and k before rotation ``[B, types, S, d]``, what each type adds at a start and at an end ``[B, types, S]``."""
    h, d, types = hidden.detach().double().numpy(), head.head_dim, head.num_types
    w, b = weights(head.dense)
    x = h @ w.T + b
    if isinstance(head, GlobalPointer):
        q = np.stack([x[..., 2 * d * a : 2 * d * a + d] for a in range(types)], 1)
        k = np.stack([x[..., 2 * d * a + d : 2 * d * (a + 1)] for a in range(types)], 1)
        return q, k, np.zeros(q.shape[:3]), np.zeros(q.shape[:3])
    w, b = weights(head.ends)
    y = x @ w.T + b
    q, k = (np.repeat(part[:, None], types, 1) for part in (x[..., :d], x[..., d:]))
    start, end = (np.stack([y[..., 2 * a + side] / 2 for a in range(types)], 1) for side in (0, 1))
    return q, k, start, end


def score(q: np.ndarray, k: np.ndarray, angles: list[float], pairs: list[tuple[int, int]], factor: float) -> float:
    """``Re sum of q_i conj(k_i) e^(i angle_i)`` over the pairs, plus what does not turn, over sqrt(d)."""
    total = sum(q[c] * k[c] for c in set(range(len(q))) - {c for pair in pairs for c in pair})
    for angle, (x, y) in zip(angles, pairs, strict=True):
        total += factor**2 * (complex(q[x], q[y]) * complex(k[x], -k[y]) * cmath.exp(1j * angle)).real
    return total / math.sqrt(len(q))


def pairs_of(head: SpanHead) -> list[tuple[int, int]]:
    spec = head.rotary
    if spec is None:
        return []
    first = spec.head_dim - spec.rotary_dim if spec.trailing else 0
    if spec.interleaved:
        return [(first + 2 * i, first + 2 * i + 1) for i in range(spec.rotary_dim // 2)]
    return [(first + i, first + i + spec.rotary_dim // 2) for i in range(spec.rotary_dim // 2)]


def scores(head: SpanHead, hidden: Tensor, mask: Tensor | None = None, positions: Tensor | None = None) -> Tensor:
    """``[B, types, S, S]`` cell by cell. ``positions`` are ``[axes, B, S]``."""
    q, k, start, end = factors(head, hidden)
    batch, types, length, _ = q.shape
    pairs, spec = pairs_of(head), head.rotary
    frequencies = [] if spec is None else spec.inv_freq(head.seq_len).tolist()
    shares = [] if spec is None else spec.axes.weights(spec.pairs)
    factor = 1.0 if spec is None else spec.attention_factor(head.seq_len)
    at = torch.arange(length).expand(1, batch, -1) if positions is None else positions
    numbers = torch.ones(batch, length, dtype=torch.int64) if mask is None else mask.long()
    out = torch.full((batch, types, length, length), -math.inf, dtype=torch.float64)
    for b in range(batch):
        for i in range(length):
            for j in range(i if head.tril else 0, length):
                if numbers[b, i] == 0 or numbers[b, i] != numbers[b, j]:
                    continue
                steps = [int(axis[b, i] - axis[b, j]) for axis in at]
                angles = [
                    f * sum(s * row[p] for s, row in zip(steps, shares, strict=True)) for p, f in enumerate(frequencies)
                ]
                for a in range(types):
                    content = score(q[b, a, i], k[b, a, j], angles, pairs, factor)
                    out[b, a, i, j] = content + start[b, a, i] + end[b, a, j]
    return out


def cross_entropy(s: Tensor, t: Tensor) -> Tensor:
    """The definition, over the cells that exist, as it is written: exact in float64 for scores up to 300 or so."""
    there = torch.isfinite(s)
    s, t = s[there], t[there].to(s.dtype)
    return torch.log1p((t * torch.exp(-s)).sum()) + torch.log1p(((1 - t) * torch.exp(s)).sum())
