"""Grouped and clipped positions: the papers' formulas in float64, one pair of tokens after the other."""

import cmath
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from phasor import RotarySpec, attention
from phasor.encodings import DualChunk, Grouped, ReRoPE, SelfExtend

SPEC = RotarySpec(head_dim=8, base=100.0)
HALF = 4


def self_extend(m: int, n: int) -> int:
    """arXiv:2401.01325, section 3.2, G = 3, w = 7."""
    return m - n if m - n < 7 else m // 3 - n // 3 + 7 - 7 // 3


def dual_chunk(m: int, n: int) -> int:
    """arXiv:2402.17463, equations 2 to 6, s = 6, c = 10, w = 4: P_q^Succ is written out as [6, 7, 8, 9, 9, 9]."""
    if m // 6 == n // 6:
        return m - n
    if m // 6 == n // 6 + 1:
        return [6, 7, 8, 9, 9, 9][m % 6] - n % 6
    return 9 - n % 6


SCHEMES: dict[str, tuple[Grouped, Callable[[int, int], int]]] = {
    "self-extend": (SelfExtend(SPEC, group=3, window=7), self_extend),
    "ReRoPE": (ReRoPE(SPEC, window=5), lambda m, n: min(m - n, 5)),
    "dual chunk": (DualChunk(SPEC, chunk=6, trained=10), dual_chunk),
}


def oracle(q: Tensor, k: Tensor, v: Tensor, at: list[int], far: Callable[[int, int], int], see: Tensor) -> Tensor:
    """softmax(Re(q_j conj(k_j) e^(i d theta_j)) / sqrt(8)) v, d by the formula, in Python's float64."""
    out, group = torch.zeros_like(q), q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                keys = [j for j in range(k.shape[2]) if at[j] <= at[i] and see[b, j]]
                x, scores = q[b, h, i].tolist(), []
                for j in keys:
                    y, d = k[b, h // group, j].tolist(), far(at[i], at[j])
                    pairs = [
                        complex(x[p], x[p + HALF])
                        * complex(y[p], y[p + HALF]).conjugate()
                        * cmath.exp(1j * d * 100.0 ** (-p / HALF))
                        for p in range(HALF)
                    ]
                    scores.append(math.exp(sum(pairs).real / math.sqrt(8)))
                for j, score in zip(keys, scores, strict=True):
                    out[b, h, i] += score / sum(scores) * v[b, h // group, j]
    return out


@pytest.fixture
def tensors() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(0)
    return tuple(torch.randn(2, heads, 31, 8, dtype=torch.float64) for heads in (4, 2, 2))  # type: ignore[return-value]


@pytest.mark.parametrize("kernel", ["auto", "flex"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_scores_of_near_and_far_keys_merge_as_the_paper_has_them(
    scheme: str, kernel: str, tensors: tuple[Tensor, Tensor, Tensor]
) -> None:
    """Also for grouped heads and for a first token that is padding: its own query sees no key and gets zeros."""
    encoding, far = SCHEMES[scheme]
    padding = torch.zeros(2, 31, dtype=torch.bool)
    padding[1, 0] = True
    at = torch.arange(31)
    with torch.no_grad():
        out = attention(*tensors, encoding, q_positions=at, key_padding_mask=padding, kernel=kernel)  # type: ignore[arg-type]
    # flex sums exponentials as float32 where it runs uncompiled
    expected = oracle(*tensors, at.tolist(), far, ~padding)
    assert (out - expected).abs().max() < (1e-12 if kernel == "auto" else 2e-6)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_distances_are_those_of_the_formula(scheme: str) -> None:
    encoding, far = SCHEMES[scheme]
    apart = encoding.distances(torch.arange(40), torch.arange(40))
    assert all(apart[m, n] == far(m, n) for m in range(40) for n in range(m + 1))
