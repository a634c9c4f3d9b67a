"""The loss of the heads: equal to the dense loss of their scores, without keeping a square."""

import pytest
import torch

from phasor.encodings.heads import EfficientGlobalPointer, GlobalPointer, losses, multilabel_cross_entropy

from . import plain

both = pytest.mark.parametrize("kind", [GlobalPointer, EfficientGlobalPointer])
NO_SPANS = torch.zeros(0, 4, dtype=torch.int64)


def made(kind, seed=0, **options):
    torch.manual_seed(seed)
    return kind(12, 3, **{"head_dim": 4, **options})


def hidden(batch, length, scale=1.0):
    return scale * torch.randn(batch, length, 12, generator=torch.Generator().manual_seed(1))


def labels_of(spans, shape):
    labels = torch.zeros(shape, dtype=torch.bool)
    labels[tuple(spans.T)] = True
    return labels


def dense(head, x, spans, mask=None):
    scores = head(x, mask)
    return multilabel_cross_entropy(scores.flatten(2), labels_of(spans, scores.shape).flatten(2)).mean()


def some_spans(head, x, mask=None, share=0.05):
    """A random part of the cells that exist."""
    there = head(x, mask).isfinite()
    return (there & (torch.rand(there.shape, generator=torch.Generator().manual_seed(2)) < share)).nonzero()


MASKS = {
    "none": lambda n: None,
    "right": lambda n: torch.arange(n).expand(2, n) < torch.tensor([[n], [n // 2]]),
    "left": lambda n: torch.arange(n).expand(2, n) >= torch.tensor([[0], [n // 2]]),
    "packed": lambda n: 1 + torch.arange(n).expand(2, n) // 5,
    "nothing": lambda n: torch.zeros(2, n, dtype=torch.int64),
}


@both
@pytest.mark.parametrize("tril", [True, False])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 130])
@pytest.mark.parametrize("name", MASKS)
def test_loss_is_the_dense_loss_of_the_scores(kind, tril, length, name):
    head, x, mask = made(kind, tril=tril), hidden(2, length), MASKS[name](length)
    for spans in (some_spans(head, x, mask), NO_SPANS):
        loss = head.loss(x, spans, mask)
        assert loss.dtype == torch.float32 and loss.ndim == 0
        torch.testing.assert_close(loss, dense(head, x, spans, mask), rtol=1e-5, atol=1e-6)


@both
@pytest.mark.parametrize("share", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("tril", [True, False])
def test_gradients_are_those_of_the_definition_from_minus_100_to_100(kind, tril, share, monkeypatch):
    """float64, against autograd of the formula written out over the cells that exist."""
    monkeypatch.setattr(losses, "ROWS", 4)
    head, mask = made(kind, tril=tril).double(), MASKS["right"](10)
    x = hidden(2, 10).double()
    for _ in range(20):  # the scores are quadratic in x, but for biases
        x = x * (100 / head(x, mask).detach().nan_to_num(neginf=0).abs().max()).sqrt()
    x.requires_grad_()
    scores = head(x, mask)
    assert 80 < scores.detach().nan_to_num(neginf=0).abs().max() < 120
    spans = some_spans(head, x, mask, share)
    labels = labels_of(spans, scores.shape)
    expected = sum(plain.cross_entropy(scores[b, a], labels[b, a]) for b in range(2) for a in range(3)) / 6
    loss = head.loss(x, spans, mask)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=0)
    wanted = [x, *head.parameters()]
    got, expected = (torch.autograd.grad(value, wanted) for value in (loss, expected))
    for mine, theirs in zip(got, expected, strict=True):
        assert (mine - theirs).abs().max() <= 1e-12 * (1 + theirs.abs().max())


@both
def test_a_span_given_twice_counts_once(kind):
    head, x = made(kind), hidden(1, 5)
    once, twice = torch.tensor([[0, 1, 2, 3]]), torch.tensor([[0, 1, 2, 3], [0, 1, 2, 3]])
    assert torch.equal(head.loss(x, once), head.loss(x, twice))


@both
def test_padding_gets_no_gradient_and_no_nan(kind):
    head, x = made(kind), hidden(2, 9).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 0, 0, 0, 0, 0, 0], [0] * 9])
    head.loss(x, torch.tensor([[0, 0, 0, 1]]), mask).backward()
    assert bool(x.grad.isfinite().all()) and bool((x.grad[~mask.bool()] == 0).all())
    assert bool((x.grad[mask.bool()].abs().sum(-1) > 0).all())
    assert all(bool(p.grad.isfinite().all()) for p in head.parameters())


@both
@pytest.mark.parametrize("length", [128, 256])
def test_no_square_is_kept_for_the_backward_pass(kind, length):
    head, x = made(kind), hidden(1, length).requires_grad_()
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        head.loss(x, torch.tensor([[0, 0, 0, 1]]))
    assert sum(kept) < 200 * length < 3 * length * length


def test_it_can_be_differentiated_once_and_says_so():
    x = hidden(1, 4).requires_grad_()
    with pytest.raises(RuntimeError, match=r"differentiated once, got create_graph=True; .* multilabel_cross_entropy"):
        torch.autograd.grad(made(GlobalPointer).loss(x, NO_SPANS), x, create_graph=True)
