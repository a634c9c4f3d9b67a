"""Two tasks that small models can learn and whose length can grow: copy a string, find a passkey.

Answers alone are scored. A batch is tokens and targets, targets ``IGNORE`` where nothing is scored.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from .data import randomness

IGNORE = -100  # the ignore_index of cross_entropy
START, COPY, KEY, ASK = 0, 1, 2, 3  # bytes that are no symbols
SYMBOLS = np.arange(4, 256)
FILLER = np.arange(ord("a"), ord("z") + 1)
DIGITS = np.arange(ord("0"), ord("9") + 1)
KEY_LENGTH = 4
DEPTHS = (0.0, 0.25, 0.5, 0.75, 1.0)

Rows = tuple[Tensor, Tensor]


def copy_rows(rng: np.random.Generator, batch: int, size: int) -> Rows:
    """``START s_1 ... s_n COPY s_1 ... s_n``, n different symbols, ``2 n + 1 = size`` rounded down to odd."""
    n = copy_symbols(size)
    symbols = np.stack([rng.permutation(SYMBOLS)[:n] for _ in range(batch)])
    marks = np.ones((batch, 1), dtype=np.int64)
    return _rows(np.concatenate([START * marks, symbols, COPY * marks, symbols], axis=1), answer=n)


def copy_symbols(size: int) -> int:
    """How many symbols a copy of ``size`` tokens has."""
    n = (size - 1) // 2
    if not 1 <= n <= len(SYMBOLS):
        raise ValueError(f"copy needs 3 to {2 * len(SYMBOLS) + 1} tokens (all symbols differ), got {size}")
    return n


def passkey_rows(rng: np.random.Generator, batch: int, size: int, depth: float | None = None) -> Rows:
    """Random letters with ``KEY dddd`` somewhere among them (``depth`` 0: first, 1: last), then ``ASK dddd``."""
    filler_size = size - 2 * KEY_LENGTH - 2
    if filler_size < 0:
        raise ValueError(f"passkey needs at least {2 * KEY_LENGTH + 2} tokens, got {size}")
    rows = []
    for _ in range(batch):
        filler, key = rng.choice(FILLER, filler_size), rng.choice(DIGITS, KEY_LENGTH)
        at = int(rng.integers(0, filler_size + 1)) if depth is None else round(depth * filler_size)
        rows.append(np.concatenate([[START], filler[:at], [KEY], key, filler[at:], [ASK], key]))
    return _rows(np.stack(rows), answer=KEY_LENGTH)


def _rows(tokens: np.ndarray, answer: int) -> Rows:
    inputs, targets = tokens[:, :-1], tokens[:, 1:].copy()
    targets[:, :-answer] = IGNORE
    return torch.from_numpy(inputs), torch.from_numpy(targets)


TASKS: dict[str, Callable[..., Rows]] = {"copy": copy_rows, "passkey": passkey_rows}
SHORTEST = {"copy": 3, "passkey": 2 * KEY_LENGTH + 2}


def task_batch(task: str, seed: int, step: int, batch: int, length: int) -> Rows:
    """A batch to train on: all rows of one size, drawn anew at each step from the shortest to ``length``."""
    rng = randomness(seed, step)
    size = int(rng.integers(SHORTEST[task], length + 1))
    return TASKS[task](rng, batch, size)


def accuracy(logits: Tensor, targets: Tensor) -> tuple[float, float]:
    """Share of answer tokens right (each with the true tokens before it), and of rows right from end to end."""
    scored = targets != IGNORE
    right = logits.argmax(-1) == targets
    return float(right[scored].double().mean()), float((right | ~scored).all(-1).double().mean())
