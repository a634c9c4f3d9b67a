"""`load_published` against the formulas of three libraries, each written out here as its code has them.

Read in bert4keras/layers.py, bert4torch/layers/global_point.py and paddlenlp/layers/globalpointer.py.
"""

import numpy as np
import pytest
import torch

from phasor import RotarySpec
from phasor.encodings.heads import EfficientGlobalPointer, GlobalPointer, load_published

D, H, SIZE, N = 12, 3, 8, 9
MASK = torch.tensor([[1] * N, [1] * 5 + [0] * 4])


def weights(*shapes):
    generator = torch.Generator().manual_seed(3)
    return [0.5 * torch.randn(shape, generator=generator) for shape in shapes]


def turned(x):
    """[B, n, ..., d]: pairs (2t, 2t + 1), angle position * 10000^(-2t/d), float32 as in the libraries."""
    n, d = x.shape[1], x.shape[-1]
    angles = torch.arange(n).float()[:, None] * 10000.0 ** (-torch.arange(0, d, 2).float() / d)
    shape = (1, n, *[1] * (x.ndim - 3), d)
    cos, sin = (t.repeat_interleave(2, -1).view(shape) for t in (angles.cos(), angles.sin()))
    swapped = torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)
    return x * cos + swapped * sin


def plain_head(x, w, b):
    """GlobalPointer of bert4keras and bert4torch; w is [out, in]."""
    y = torch.stack((x @ w.T + b).chunk(H, -1), -2)
    q, k = turned(y[..., :SIZE]), turned(y[..., SIZE:])
    return torch.einsum("bmhd,bnhd->bhmn", q, k) / SIZE**0.5


def even_odd_head(x, p_kernel, p_bias, q_kernel, q_bias):
    """EfficientGlobalPointer of bert4keras, GlobalPointer of PaddleNLP; kernels are [in, out]."""
    y = x @ p_kernel + p_bias
    logits = torch.einsum("bmd,bnd->bmn", turned(y[..., ::2]), turned(y[..., 1::2])) / SIZE**0.5
    bias = (y @ q_kernel + q_bias).transpose(1, 2) / 2
    return logits[:, None] + bias[:, ::2, None] + bias[:, 1::2, :, None]


def halves_head(x, p, p_bias, q, q_bias):
    """EfficientGlobalPointer of bert4torch; weights are [out, in]."""
    y = x @ p.T + p_bias
    logits = torch.einsum("bmd,bnd->bmn", turned(y[..., :SIZE]), turned(y[..., SIZE:])) / SIZE**0.5
    bias = torch.stack((y @ q.T + q_bias).chunk(H, -1), -2).transpose(1, 2) / 2
    return logits[:, None] + bias[..., :1] + bias[..., 1:].transpose(2, 3)


def masked(logits):
    """Their masks by 1e12, in float32."""
    logits = logits - (1 - MASK[:, None, :, None] * MASK[:, None, None, :]) * 1e12
    return logits - torch.tril(torch.ones_like(logits), -1) * 1e12


CASES = {
    ("bert4torch", GlobalPointer): (plain_head, ["dense.weight", "dense.bias"], [(2 * H * SIZE, D), 2 * H * SIZE]),
    ("bert4keras", GlobalPointer): (
        lambda x, w, b: plain_head(x, w.T, b),
        ["dense/kernel", "dense/bias"],
        [(D, 2 * H * SIZE), 2 * H * SIZE],
    ),
    ("bert4torch", EfficientGlobalPointer): (
        halves_head,
        ["p_dense.weight", "p_dense.bias", "q_dense.weight", "q_dense.bias"],
        [(2 * SIZE, D), 2 * SIZE, (2 * H, 2 * SIZE), 2 * H],
    ),
    ("bert4keras", EfficientGlobalPointer): (
        even_odd_head,
        ["p_dense/kernel", "p_dense/bias", "q_dense/kernel", "q_dense/bias"],
        [(D, 2 * SIZE), 2 * SIZE, (2 * SIZE, 2 * H), 2 * H],
    ),
    ("paddlenlp", EfficientGlobalPointer): (
        even_odd_head,
        ["dense1.weight", "dense1.bias", "dense2.weight", "dense2.bias"],
        [(D, 2 * SIZE), 2 * SIZE, (2 * SIZE, 2 * H), 2 * H],
    ),
}
cases = pytest.mark.parametrize("layout, kind", CASES)


def state(layout, kind):
    formula, names, shapes = CASES[layout, kind]
    return formula, dict(zip(names, weights(*shapes), strict=True))


@cases
@pytest.mark.parametrize("arrays", [False, True])
def test_scores_are_those_of_the_library(layout, kind, arrays):
    formula, stored = state(layout, kind)
    head, x = kind(D, H, head_dim=SIZE), torch.randn(2, N, D, generator=torch.Generator().manual_seed(4))
    load_published(head, {n: np.asarray(w) for n, w in stored.items()} if arrays else stored, layout=layout)
    expected, got = masked(formula(x, *stored.values())), head(x, MASK)
    there = expected > -1e11
    assert torch.equal(there, got.isfinite())
    torch.testing.assert_close(got[there], expected[there], rtol=0, atol=1e-5)
    assert expected[there].abs().max() > 1


def test_errors_change_nothing():
    head = EfficientGlobalPointer(D, H, head_dim=SIZE)
    _, stored = state("paddlenlp", EfficientGlobalPointer)
    before = {n: w.clone() for n, w in head.state_dict().items()}
    halves = EfficientGlobalPointer(D, H, head_dim=SIZE, rotary=RotarySpec(head_dim=SIZE))
    missing = {n: w for n, w in stored.items() if n != "dense2.weight"}
    for call, message in [
        (lambda: load_published(head, stored, layout="keras"), "layout must be one of 'bert4keras', 'bert4torch', 'p"),
        (lambda: load_published(GlobalPointer(D, H), stored, layout="paddlenlp"), "'paddlenlp' has no GlobalPointer"),
        (lambda: load_published(halves, stored, layout="paddlenlp"), "head must have interleaved pairs"),
        (lambda: load_published(head, stored, layout="bert4torch"), "unknown entries .*; layout 'bert4torch' has"),
        (lambda: load_published(head, missing, layout="paddlenlp"), "state_dict must have 'dense2.weight', got"),
        (
            lambda: load_published(head, stored | {"dense2.weight": torch.zeros(D, 2 * H)}, layout="paddlenlp"),
            "dense2 must map 16 to 6 units in this head, got a weight for 12 to 6 and 6 biases",
        ),
        (
            lambda: load_published(head, stored | {"dense1.weight": torch.zeros(3)}, layout="paddlenlp"),
            r"dense1.weight must be a matrix, got shape \[3\]",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
    assert all(torch.equal(w, before[n]) for n, w in head.state_dict().items())


def test_a_head_without_rotation_takes_weights_too():
    """GPLinker's head and tail links: RoPE off, every pair of tokens."""
    _, stored = state("paddlenlp", EfficientGlobalPointer)
    head = EfficientGlobalPointer(D, H, head_dim=SIZE, rotary=None, tril=False)
    load_published(head, stored, layout="paddlenlp")
    x = torch.randn(1, N, D)
    p, p_bias, q, q_bias = stored.values()
    y = x @ p + p_bias
    bias = (y @ q + q_bias).transpose(1, 2) / 2
    expected = (y[..., ::2] @ y[..., 1::2].mT / SIZE**0.5)[:, None] + bias[:, ::2, None] + bias[:, 1::2, :, None]
    torch.testing.assert_close(head(x), expected, rtol=0, atol=1e-5)
