"""Ten seconds: import, rotate, compare two numbers. For a new installation, before anything else."""

import math

import torch

import phasor


def test_one_rotation():
    """(1, 0) turned by one radian at position 1 is (cos 1, sin 1)."""
    spec = phasor.RotarySpec(head_dim=2)
    x = torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    y = phasor.apply_rotary(x, phasor.Rotation.at(spec, torch.tensor([0, 1])))
    assert y[0, 0].tolist() == [1.0, 0.0]
    assert abs(y[0, 1, 0].item() - math.cos(1)) < 2.5e-7
    assert abs(y[0, 1, 1].item() - math.sin(1)) < 2.5e-7


def test_scores_depend_on_distance_only():
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 1, 1, 64)
    spec = phasor.RotarySpec(head_dim=64)

    def score(m, n):
        a, _ = phasor.rotate(q, q, torch.tensor([m]), spec)
        b, _ = phasor.rotate(k, k, torch.tensor([n]), spec)
        return float((a * b).sum())

    assert abs(score(7, 3) - score(2**30 + 7, 2**30 + 3)) < 4 * 2**-23 * float(q.norm() * k.norm())
    assert abs(score(7, 3) - score(7, 4)) > 1e-3


def test_public_names_exist():
    assert all(hasattr(phasor, name) for name in phasor.__all__)
