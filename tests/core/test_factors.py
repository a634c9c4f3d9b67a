"""The factors that few models use, beyond their laws in `test_algebra`: second members, padding, learned, real."""

import math

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary
from phasor.rotary.axes import Alternating, Listed

from .conftest import FACTORS, LOG_SCALE, SECOND, assert_within, at

F64 = torch.float64


def test_second_follows_its_rotation():
    rotation = at(SECOND["halves"], torch.arange(12).view(2, 6))
    assert rotation.second is not None
    part = rotation.slice(2, 4)
    assert torch.equal(part.second[0], rotation.second[0][2:4])
    padded = rotation.padded(before=1, after=2)
    x = torch.randn(1, 1, 9, 16, dtype=F64)
    y = apply_rotary(x, padded)
    assert torch.equal(y[..., 1:7, :], apply_rotary(x[..., 1:7, :], rotation))
    assert torch.equal(y[..., [0, 7, 8], :], x[..., [0, 7, 8], :])
    assert rotation.to("cpu").second[1].device.type == "cpu"


@pytest.mark.parametrize("batch", [(), (2,)])
def test_padded_tokens_pass(batch):
    rotation = Rotation.at(RotarySpec(head_dim=8), torch.randint(0, 5000, (*batch, 4)))
    x = torch.randn(2, 3, 7, 8)
    y = apply_rotary(x, rotation.padded(before=1, after=2))
    assert torch.equal(y[:, :, 1:5], apply_rotary(x[:, :, 1:5], rotation))
    assert torch.equal(y[:, :, [0, 5, 6]], x[:, :, [0, 5, 6]])
    assert torch.equal(rotation.padded().cos, rotation.cos)
    back = rotation.padded(before=1, after=2).inverse()
    assert_within(apply_rotary(y, back), x, 8)


def test_the_gradient_of_a_log_scale():
    spec, positions = FACTORS["learned-yarn-last-reverse"], torch.tensor([0, 1, 5])
    x = torch.randn(1, 1, 3, spec.head_dim, dtype=F64)

    def call(log_scale):
        return apply_rotary(x, Rotation.at(spec, positions, log_scale=log_scale, dtype=F64))

    assert torch.autograd.gradcheck(call, LOG_SCALE.clone().requires_grad_())
    fixed = spec.replace(learned=False)
    assert_within(call(torch.zeros(8)), apply_rotary(x, Rotation.at(fixed, positions, dtype=F64)), 8)


def test_real_coordinates_at_whole_numbers_are_positions():
    spec, positions = RotarySpec(head_dim=16), torch.tensor([-3, 0, 1, 7, 100])
    real = spec.replace(coordinates="real")
    exact = Rotation.at(spec, positions, dtype=F64)
    for same in (positions, positions.float(), positions.double()):
        assert_within(Rotation.at(real, same, dtype=F64).cos, exact.cos, 200)
        assert_within(Rotation.at(real, same, dtype=F64).sin, exact.sin, 200)
    assert Rotation.at(real, positions.double()).cos.dtype == torch.float32


def test_a_scale_of_positions_stays_in_integer_phases():
    """Half a position per token: token 2 n is where n was, off by no more than the steps of phase, at any distance."""
    spec, n = RotarySpec(head_dim=16, base=500.0), torch.tensor([0, 1, 4095, 2**30])
    half = spec.replace(position_scale=0.5)
    a, b = (Rotation.at(s, p, dtype=F64) for s, p in ((spec, n), (half, 2 * n)))
    allowed = 8 * 2**-52 + n.unsqueeze(-1) * 2 * math.pi * 2.0**-63
    assert ((b.cos - a.cos).abs() <= allowed).all()
    assert ((b.sin - a.sin).abs() <= allowed).all()
    assert torch.equal(half.inv_freq(), spec.inv_freq())


def test_alternating_is_a_list_too():
    for own, rungs in ((False, tuple((p, 8) for p in range(8))), (True, tuple((p // 2, 4) for p in range(8)))):
        axes, listed = Alternating((1, 0), own_ladders=own), Listed((1, 0) * 4, rungs)
        assert axes.axis_of_pair(8) == listed.axis_of_pair(8)
        assert axes.rung_of_pair(8) == listed.rung_of_pair(8)
        a, b = (RotarySpec(head_dim=16, axes=scheme) for scheme in (axes, listed))
        assert torch.equal(a.inv_freq(), b.inv_freq())


def test_listed_counts_its_axes():
    assert Listed((0, 2, 1)).count == 3
    assert Listed((0, 0), axes=4).count == 4
    assert Listed([0, 1], [[0, 2], [1, 2]]) == Listed((0, 1), ((0, 2), (1, 2)))
