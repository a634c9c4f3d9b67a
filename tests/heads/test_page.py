"""docs/spans.md: the numbers of its tables, but for measured times. Its equations are tested beside this file."""

import math
from pathlib import Path

import pytest
import torch

from phasor import RotarySpec
from phasor.encodings.heads import multilabel_cross_entropy, sparse_multilabel_cross_entropy

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


def test_table_of_the_preference_for_short_spans():
    header, row = table("$j - i$")
    for distance, shown in zip(header[1:], row[1:], strict=True):
        assert f"{(int(distance) * SPEC.inv_freq()).cos().mean().item():.3f}" == shown


@pytest.mark.parametrize("n, shown", [(128, "9.02"), (512, "11.79")])
def test_the_loss_at_the_start(n, shown):
    zero = torch.zeros(n * (n + 1) // 2)
    assert f"{multilabel_cross_entropy(zero, zero).item():.2f}" == shown and f"{shown} at $n = {n}$" in PAGE


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


def test_numbers_about_the_optimum_and_half_precision():
    right = 0.5 * math.log(0.97 / 0.03)
    assert f"{right:.3f}" == "1.738" and f"{1 / (1 + math.exp(-right)):.2f}" == "0.85"
    assert 64 * 40 * 40 == 102400 > torch.finfo(torch.float16).max == 65504 and 102400 / 8 == 12800
    assert torch.tensor(256, dtype=torch.bfloat16) + 1 == 256
    row = torch.full((1, 3), -math.inf, requires_grad=True)
    assert torch.autograd.grad(torch.logsumexp(row, -1).sum(), row)[0].isnan().all()
