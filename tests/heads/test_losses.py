"""Losses against their definition (mpmath, and autograd of the plain formula) and beside the published sparse form."""

import math

import pytest
import torch
from mpmath import mp, mpf

from phasor.encodings.heads import multilabel_cross_entropy, sparse_multilabel_cross_entropy

from . import plain

NEVER = -math.inf


def by_mpmath(scores, labels):
    with mp.workdps(60):
        s, t = [mpf(x) for x in scores], [mpf(x) for x in labels]
        positive = sum(b * mp.exp(-a) for a, b in zip(s, t, strict=True))
        negative = sum((1 - b) * mp.exp(a) for a, b in zip(s, t, strict=True))
        return float(mp.log(1 + positive) + mp.log(1 + negative))


def labels_of(positives, cells):
    labels = torch.zeros(*positives.shape[:-1], cells + 1, dtype=torch.bool)
    return labels.scatter(-1, torch.where(positives < 0, cells, positives), True)[..., :cells]


def spread(rows, cells, seed=0):
    """Scores from -100 to 100."""
    return (torch.rand(rows, cells, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.5) * 200


POSITIVES = {
    "some": torch.tensor([[3, 7, -1], [-1, 0, 29]]),
    "none": torch.full((2, 3), -1),
    "no room for any": torch.zeros(2, 0, dtype=torch.int64),
    "all": torch.arange(30).repeat(2, 1),
}


@pytest.mark.parametrize("dtype, tolerance", [(torch.float64, 1e-13), (torch.float32, 1e-6)])
@pytest.mark.parametrize("scale", [1e-3, 0.1, 1.0])
@pytest.mark.parametrize("shift", [0.0, -25.0])
@pytest.mark.parametrize("name", POSITIVES)
def test_values_are_right(name, shift, scale, dtype, tolerance):
    scores, positives = (spread(2, 30) * scale + shift).to(dtype), POSITIVES[name]
    labels = labels_of(positives, 30)
    rows = zip(scores.tolist(), labels.tolist(), strict=True)
    expected = torch.tensor([by_mpmath(*row) for row in rows], dtype=torch.float64)
    for got in (multilabel_cross_entropy(scores, labels), sparse_multilabel_cross_entropy(scores, positives)):
        assert got.dtype == dtype and got.shape == (2,)
        torch.testing.assert_close(got.double(), expected, rtol=tolerance, atol=0)


@pytest.mark.parametrize("name", POSITIVES)
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_those_of_the_definition(name, masked):
    scores, positives = spread(2, 30), POSITIVES[name]
    labels = labels_of(positives, 30)
    if masked and name != "all":
        scores[:, 10:20] = NEVER
    scores.requires_grad_()
    expected = torch.autograd.grad(sum(plain.cross_entropy(s, t) for s, t in zip(scores, labels, strict=True)), scores)
    for loss in (multilabel_cross_entropy(scores, labels), sparse_multilabel_cross_entropy(scores, positives)):
        got = torch.autograd.grad(loss.sum(), scores)
        torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-300)


def test_soft_labels():
    scores = spread(4, 12).requires_grad_()
    labels = torch.rand(4, 12, dtype=torch.float64)
    labels[0, :4] = torch.tensor([0.0, 1.0, 0.5, 1e-12])
    loss = multilabel_cross_entropy(scores, labels)
    for got, s, t in zip(loss.tolist(), scores.tolist(), labels.tolist(), strict=True):
        assert got == pytest.approx(by_mpmath(s, t), rel=1e-13)
    expected = torch.autograd.grad(sum(plain.cross_entropy(s, t) for s, t in zip(scores, labels, strict=True)), scores)
    torch.testing.assert_close(torch.autograd.grad(loss.sum(), scores), expected, rtol=1e-12, atol=1e-300)


def test_the_optimum_is_sigmoid_of_twice_the_score():
    share = torch.tensor([0.05, 0.3, 0.5, 0.8, 0.97], dtype=torch.float64)
    scores = (share.logit() / 2).requires_grad_()
    assert torch.autograd.grad(multilabel_cross_entropy(scores, share), scores)[0].abs().max() < 1e-15
    usual = share.logit().requires_grad_()  # sigmoid(s), as of a binary cross entropy, is not one
    assert torch.autograd.grad(multilabel_cross_entropy(usual, share), usual)[0].abs().max() > 0.05


def published_sparse(scores, positives, epsilon=1e-7):
    """kexue.fm/archives/8888 and bert4keras, index 0 unused: all minus positives, clamped."""
    chosen, zero = scores.gather(-1, positives), torch.zeros(scores.shape[0], 1)
    everything = torch.logsumexp(torch.cat((scores, zero), -1), -1)
    positive = torch.logsumexp(torch.cat((-chosen, zero), -1), -1)
    share = torch.logsumexp(chosen, -1) - everything
    return positive + everything + torch.clamp(1 - share.exp(), epsilon, 1).log()


@pytest.mark.parametrize("s", [10.0, 14.0, 16.0, 18.0, 20.0, 30.0])
def test_the_published_sparse_form_turns_its_gradient_round_and_ours_does_not(s):
    """One positive at s among 500 negatives at -8, float32."""
    scores = torch.full((1, 501), -8.0)
    scores[0, 7] = s
    scores.requires_grad_()
    index = torch.tensor([[7]])
    ours = torch.autograd.grad(sparse_multilabel_cross_entropy(scores, index).sum(), scores)[0][0]
    theirs = torch.autograd.grad(published_sparse(scores, index).sum(), scores)[0][0]
    exact_up, exact_down = -math.exp(-s) / (1 + math.exp(-s)), math.exp(-8) / (1 + 500 * math.exp(-8))
    assert ours[7].item() == pytest.approx(exact_up, rel=1e-5)
    assert ours[100].item() == pytest.approx(exact_down, rel=1e-5)
    if s >= 16:  # the positive is pushed down with full weight and the negatives are forgotten
        assert theirs[7] > 0.99
        assert theirs[100] < 1e-6 * exact_down
    else:
        assert abs(theirs[7].item() - exact_up) < 1e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_widened_first(dtype):
    scores = spread(2, 30).to(dtype)
    positives = POSITIVES["some"]
    wide = sparse_multilabel_cross_entropy(scores.float(), positives)
    assert torch.equal(sparse_multilabel_cross_entropy(scores, positives), wide)
    torch.testing.assert_close(multilabel_cross_entropy(scores, labels_of(positives, 30)), wide)


def test_no_rows_and_no_cells():
    scores = torch.randn(2, 3, 5)
    assert sparse_multilabel_cross_entropy(scores[:0], torch.full((0, 3, 4), -1)).shape == (0, 3)
    assert multilabel_cross_entropy(scores[..., :0], scores[..., :0]).tolist() == [[0.0] * 3] * 2


def test_rows_without_a_cell_have_no_loss_and_no_gradient():
    scores = torch.full((1, 4), NEVER, requires_grad=True)
    for loss in (
        multilabel_cross_entropy(scores, torch.zeros(1, 4)),
        sparse_multilabel_cross_entropy(scores, torch.full((1, 2), -1)),
    ):
        (gradient,) = torch.autograd.grad(loss.sum(), scores)
        assert loss.tolist() == [0.0] and gradient.tolist() == [[0.0] * 4]
