"""Training in half precision: no NaN, float32 scores, and the overflow of a late scale avoided."""

import pytest
import torch

from phasor.encodings.heads import EfficientGlobalPointer, GlobalPointer, multilabel_cross_entropy
from phasor.encodings.heads.cells import Factors
from phasor.encodings.heads.losses import negative_term

both = pytest.mark.parametrize("kind", [GlobalPointer, EfficientGlobalPointer])
halves = pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])

MASK = torch.tensor([[1] * 6 + [0] * 4, [0] * 3 + [1] * 7, [0] * 10])
SPANS = torch.tensor([[0, 0, 1, 4], [0, 1, 2, 2], [1, 2, 3, 9]])


def made(kind, hidden_size=32):
    torch.manual_seed(0)
    return kind(hidden_size, 3, head_dim=64)


def sharp(head, scale):
    """Weights so large that q and k are."""
    with torch.no_grad():
        head.dense.weight.mul_(scale)
    return head


@both
@halves
@pytest.mark.parametrize("autocast", [True, False])
def test_heads_train(kind, dtype, autocast):
    """Under autocast, or (one step: AdamW's epsilon is no float16) themselves in half precision."""
    head, x = made(kind).to(torch.float32 if autocast else dtype), torch.randn(3, 10, 32)
    x, losses = x.to(head.dense.weight.dtype).requires_grad_(), []
    optimizer = torch.optim.AdamW(head.parameters(), lr=0.01)
    for _ in range(12 if autocast else 1):
        with torch.autocast("cpu", dtype, enabled=autocast):
            loss = head.loss(x, SPANS, MASK)
        assert loss.dtype == torch.float32
        optimizer.zero_grad()
        loss.backward()
        assert all(bool(p.grad.isfinite().all()) for p in (x, *head.parameters())) and x.grad.dtype == x.dtype
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0] or not autocast


@both
@halves
def test_a_backward_pass_inside_of_autocast_is_that_outside(kind, dtype):
    head, x = made(kind), torch.randn(3, 10, 32)
    with torch.autocast("cpu", dtype):
        factors = [factor.detach() for factor in head.project(x, None) if factor is not None]

    def gradients(inside):
        leaves = [factor.clone().requires_grad_() for factor in factors]
        term = negative_term(Factors(*leaves), MASK, SPANS, 3, True).sum()
        with torch.autocast("cpu", dtype, enabled=inside):
            return torch.autograd.grad(term, leaves)

    assert all(torch.equal(a, b) for a, b in zip(gradients(True), gradients(False), strict=True))


@both
@halves
def test_autocast_scores_are_float32_and_close(kind, dtype):
    head, x = made(kind), torch.randn(3, 10, 32)
    with torch.autocast("cpu", dtype):
        scores = head(x, MASK)
        loss = head.loss(x, SPANS, MASK)
    assert scores.dtype == torch.float32
    exact = head(x, MASK)
    assert torch.equal(scores.isfinite(), exact.isfinite())
    there = exact.isfinite()
    # q, k and what comes of them are rounded once: a few units of the format on scores of size 1
    torch.testing.assert_close(scores[there], exact[there], rtol=0, atol=8 * torch.finfo(dtype).eps)
    labels = torch.zeros(scores.shape, dtype=torch.bool)
    labels[tuple(SPANS.T)] = True
    same = multilabel_cross_entropy(scores.flatten(2), labels.flatten(2)).mean()
    torch.testing.assert_close(loss, same, rtol=1e-5, atol=1e-6)


@both
def test_products_beyond_float16_do_no_harm(kind):
    """64 products of 40 by 40 are 102400, more than float16 holds (65504)."""
    head, x = sharp(made(kind), 300.0), torch.randn(3, 10, 32, requires_grad=True)
    with torch.autocast("cpu", torch.float16):
        q, k = (part.transpose(1, 2).half() for part in head.dense(x)[..., :128].unflatten(-1, (1, 2, 64)).unbind(-2))
        late = q @ k.mT
        scores = head(x, MASK)
        loss = head.loss(x, SPANS, MASK)
    assert late.dtype == torch.float16 and bool(late.isinf().any())
    assert not bool(scores.isnan().any()) and not bool((scores == torch.inf).any())
    loss.backward()
    assert loss.isfinite() and bool(x.grad.isfinite().all())
