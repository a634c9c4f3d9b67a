"""docs/spans.md: every equation, every number of its tables (but measured times) and its example."""

import doctest
import math
import re
from pathlib import Path

import pytest
import torch

from phasor import Layout, RotarySpec, Rotation, apply_rotary
from phasor.encodings.heads import GlobalPointer, multilabel_cross_entropy, sparse_multilabel_cross_entropy
from phasor.encodings.heads.cells import Factors, score_block
from phasor.encodings.heads.losses import negative_term

from .test_losses import published_sparse

PATH = Path(__file__).resolve().parents[2] / "docs/spans.md"
PAGE = PATH.read_text(encoding="utf-8")
SPEC = RotarySpec(head_dim=64, interleaved=True)


def table(first_header):
    lines = PAGE.splitlines()
    (start,) = (i for i, line in enumerate(lines) if line.startswith(f"| {first_header} |"))
    rows = [lines[start]]
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(line)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def turn(x, position):
    return apply_rotary(x.view(1, 1, -1), Rotation.at(SPEC, torch.tensor([position]), dtype=x.dtype)).flatten()


def vectors(*sizes):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator, dtype=torch.float64) for size in sizes]


def test_every_equation_has_a_test():
    tags = [int(n) for n in re.findall(r"\\tag\{(\d+)\}", PAGE)]
    source = "\n".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert tags == list(range(1, len(tags) + 1))
    assert {int(n) for n in re.findall(r"^def test_equation_(\d\d)_", source, re.MULTILINE)} == set(tags)


def test_the_example_runs():
    assert doctest.testfile(str(PATH), module_relative=False).failed == 0


def test_equation_01_only_the_difference_enters():
    q, k = vectors(64, 64)
    for i, j in [(0, 0), (3, 8), (100, 117)]:
        assert (turn(q, i) @ turn(k, j)).item() == pytest.approx((q @ turn(k, j - i)).item(), rel=1e-12)


def test_equation_02_types_differ_by_a_row_and_a_column():
    """All of the equation is checked cell by cell in test_scores.py."""
    q, k, start, end = vectors((1, 1, 5, 8), (1, 1, 5, 8), (1, 2, 5), (1, 2, 5))
    one, other = score_block(Factors(q, k, start, end))[0]
    u, v = start[0, 0] - start[0, 1], end[0, 0] - end[0, 1]
    torch.testing.assert_close(one - other, u[:, None] + v, rtol=0, atol=1e-13)


def test_equation_03_without_rotation_equal_tokens_have_equal_scores():
    torch.manual_seed(0)
    x = torch.randn(1, 6, 8)
    x[0, 3] = x[0, 0]
    blind, seeing = (GlobalPointer(8, 1, head_dim=4, rotary=on, tril=False)(x)[0, 0] for on in (False, True))
    torch.testing.assert_close(blind[0], blind[3])
    assert (seeing[0] - seeing[3]).abs().max() > 0.01


@pytest.mark.parametrize("length", [0, 3, 11])
def test_equation_04_a_head_can_prefer_a_length(length):
    (q,) = vectors(64)
    k, weight = turn(q, -length), q.view(32, 2).square().sum(-1)
    scores = []
    for j in range(40):
        expected = (weight * ((j - length) * SPEC.inv_freq()).cos()).sum().item()
        scores.append((turn(q, 5) @ turn(k, 5 + j)).item())
        assert scores[-1] == pytest.approx(expected, rel=1e-11, abs=1e-11)
    assert scores.index(max(scores)) == length


def test_table_of_the_preference_for_short_spans():
    header, row = table("$j - i$")
    for distance, shown in zip(header[1:], row[1:], strict=True):
        assert f"{(int(distance) * SPEC.inv_freq()).cos().mean().item():.3f}" == shown


def example():
    (scores,) = vectors(12)
    return 3 * scores, torch.arange(12) % 4 == 0


def test_equation_05_the_loss_over_all_pairs_factors():
    s, t = example()
    p, n = s[t], s[~t]
    pairs_of_scores = (n[:, None] - p[None, :]).exp().sum()
    whole = (1 + n.exp().sum() + (-p).exp().sum() + pairs_of_scores).log()
    torch.testing.assert_close(multilabel_cross_entropy(s, t), whole, rtol=1e-13, atol=0)


def test_equation_06_is_what_is_computed():
    s, t = example()
    expected = (1 + (-s[t]).exp().sum()).log() + (1 + s[~t].exp().sum()).log()
    torch.testing.assert_close(multilabel_cross_entropy(s, t), expected, rtol=1e-13, atol=0)


def test_equation_07_the_gradients_are_balanced():
    s, t = example()
    s.requires_grad_()
    (gradient,) = torch.autograd.grad(multilabel_cross_entropy(s, t), s)
    down = 1 - 1 / (1 + s.detach()[~t].exp().sum())
    torch.testing.assert_close(gradient[~t].sum(), down, rtol=1e-12, atol=0)
    assert 0 < gradient[~t].sum() < 1 and -1 < gradient[t].sum() < 0


@pytest.mark.parametrize("n, shown", [(128, "9.02"), (512, "11.79")])
def test_the_loss_at_the_start(n, shown):
    zero = torch.zeros(n * (n + 1) // 2)
    assert f"{multilabel_cross_entropy(zero, zero).item():.2f}" == shown and f"{shown} at $n = {n}$" in PAGE


def test_equation_08_soft_labels():
    s, t = vectors(9)[0], torch.rand(9, dtype=torch.float64)
    expected = (1 + (t * (-s).exp()).sum()).log() + (1 + ((1 - t) * s.exp()).sum()).log()
    torch.testing.assert_close(multilabel_cross_entropy(s, t), expected, rtol=1e-13, atol=0)
    older = (1 - 2 * t) * s  # kexue.fm/archives/7359
    older = torch.logsumexp(torch.cat((older - t * 1e12, torch.zeros(1))), -1) + torch.logsumexp(
        torch.cat((older - (1 - t) * 1e12, torch.zeros(1))), -1
    )
    assert abs(older - expected) > 0.5


def test_equation_09_the_optimum():
    t = torch.rand(20, dtype=torch.float64)
    s = (0.5 * (t / (1 - t)).log()).requires_grad_()
    assert torch.autograd.grad(multilabel_cross_entropy(s, t), s)[0].abs().max() < 1e-15
    torch.testing.assert_close((2 * s.detach()).sigmoid(), t)
    right = 0.5 * math.log(0.97 / 0.03)
    assert f"{right:.3f}" == "1.738" and f"{1 / (1 + math.exp(-right)):.2f}" == "0.85"


def test_equation_10_the_subtraction():
    s, t = example()
    alpha, beta = (1 + s.exp().sum()).log(), s[t].exp().sum().log()
    r = 1 - (beta - alpha).exp()
    negative = (1 + s[~t].exp().sum()).log()
    torch.testing.assert_close(alpha + r.log(), negative, rtol=1e-12, atol=0)
    torch.testing.assert_close(r, (1 + s[~t].exp().sum()) / (1 + s.exp().sum()), rtol=1e-12, atol=0)


def test_table_of_the_published_sparse_loss():
    for s, *shown in table("$s$")[1:]:
        scores = torch.full((1, 501), -8.0)
        scores[0, 7] = float(s)
        scores.requires_grad_()
        theirs, ours = (f(scores, torch.tensor([[7]])) for f in (published_sparse, sparse_multilabel_cross_entropy))
        numbers = [theirs.item(), ours.item()]
        slopes = [torch.autograd.grad(loss.sum(), scores)[0][0, [7, 100]].tolist() for loss in (theirs, ours)]
        numbers += [slopes[side][cell] for cell in (0, 1) for side in (0, 1)]
        # the published slope at 14 is the noise of float32
        for text, number, noise in zip(shown, numbers, (0, 0, 2e-6, 0, 1e-12, 0), strict=True):
            assert float(text) == pytest.approx(number, rel=0.03, abs=noise)


def test_equation_11_the_share_of_a_cell():
    q, k = vectors((1, 1, 6, 4), (1, 1, 6, 4))
    sentence, nothing = torch.ones(1, 6, dtype=torch.int64), torch.zeros(0, 4, dtype=torch.int64)
    start = torch.zeros(1, 1, 6, dtype=torch.float64, requires_grad=True)
    total = negative_term(Factors(q, k, start, torch.zeros_like(start)), sentence, nothing, 1, True)
    (gradient,) = torch.autograd.grad(total.sum(), start)
    cells = score_block(Factors(q, k)).triu().masked_fill(torch.ones(6, 6).tril(-1).bool(), -math.inf)
    torch.testing.assert_close(gradient, (cells - total.detach()[..., None, None]).exp().sum(-1))


def test_equation_12_the_permutation():
    """The scores are compared in test_published.py; this is the order the page prints."""
    assert Layout(head_dim=8, interleaved=True).permutation(Layout(head_dim=8)) == [0, 2, 4, 6, 1, 3, 5, 7]


def test_numbers_about_half_precision():
    assert 64 * 40 * 40 == 102400 > torch.finfo(torch.float16).max == 65504 and 102400 / 8 == 12800
    assert torch.tensor(256, dtype=torch.bfloat16) + 1 == 256
    row = torch.full((1, 3), -math.inf, requires_grad=True)
    assert torch.autograd.grad(torch.logsumexp(row, -1).sum(), row)[0].isnan().all()
