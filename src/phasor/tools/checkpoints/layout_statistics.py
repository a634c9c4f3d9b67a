"""Which layout weights are in, from the weights alone: along the frequencies, the energy of trained rows is smooth.

The energy of a pair is what its two rows of q (or of k) weigh: ``E_i = log(|w_a|^2 + |w_b|^2)``. Pairs of near
frequencies learn alike, so ``T = mean |E_{i+1} - E_i|`` is small when rows are paired and ordered as they were trained,
and larger when they are paired at random. ``z`` says how many standard deviations below 200 random pairings it lies.
"""

from collections.abc import Mapping

import numpy as np

from .heads import Floats, gains_of, heads_of
from .permutation import PAIRS, in_words, turned
from .qk_tensors import Attention
from .stored import Tensor

SURE, AHEAD = 4.0, 2.0  # of z: to be believed, and before the other layout
PAIRINGS = 200
FEWEST = 4  # pairs; fewer have no course


def energies(attention: Attention, tensors: Mapping[str, Tensor], kind: str) -> Floats | None:
    """The weight of every channel that turns, ``[heads, channels]``; None where there are no whole rows of it."""
    found = [np.square(weight).sum(1) for weight in heads_of(attention, tensors, kind)]
    if not found:
        return None
    x = np.stack(found)
    if (gains := gains_of(attention, tensors, kind, len(x))) is not None:
        x = x * np.square(gains)
    return x if np.isfinite(x).all() and (x > 0).all() else None


def roughness(pairs: Floats) -> Floats:
    """``T`` of energies of pairs ``[..., heads, P]``."""
    found: Floats = np.abs(np.diff(np.log(pairs), axis=-1)).mean((-1, -2))
    return found


def z_of(attention: Attention, channels: Floats) -> dict[str, float]:
    """How much smoother than random pairings each layout is; nothing where there are too few pairs."""
    count = channels.shape[1]
    if count < 2 * FEWEST:
        return {}
    made = np.random.default_rng(0)
    shuffled = np.stack([channels[:, made.permutation(count)] for _ in range(PAIRINGS)])
    null = roughness(shuffled[..., 0::2] + shuffled[..., 1::2])
    if null.std() == 0:
        return {}
    found = {}
    for word in PAIRS:
        order = turned(in_words(attention.spec.layout, word)).channels()
        a, b = channels[:, order[: count // 2]], channels[:, order[count // 2 :]]
        found[word] = float((null.mean() - roughness(a + b)) / null.std())
    return found


def together(zs: list[dict[str, float]]) -> dict[str, float]:
    """Stouffer's sum over layers.

    >>> together([{"halves": 3.0, "interleaved": 0.0}] * 4)
    {'halves': 6.0, 'interleaved': 0.0}
    """
    held = [z for z in zs if z]
    return {word: sum(z[word] for z in held) / len(held) ** 0.5 for word in PAIRS} if held else {}


def verdict(z: Mapping[str, float]) -> str:
    """The layout that is smooth and clearly smoother than the other; ``""``: cannot tell.

    >>> verdict({"halves": 7.0, "interleaved": 4.5}), verdict({"halves": 7.0, "interleaved": 6.5})
    ('halves', '')
    """
    if not z:
        return ""
    best, other = sorted(PAIRS, key=lambda word: -z[word])
    return best if z[best] > SURE and z[best] - z[other] > AHEAD else ""
