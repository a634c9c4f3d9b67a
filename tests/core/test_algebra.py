"""The laws of R(m), in float64, for every spec: every scaling, axes, place and layout, and the factors that few use.

Steps of phase add exactly, so the laws hold to a few roundings at any position; no tolerance grows with it. Angles
that are formed in floats (real coordinates, learned frequencies) are off by their size times the rounding of float64.
"""

import math

import pytest
import torch

from phasor import RotarySpec, apply_rotary, apply_rotary_qk
from phasor.rotary.matrix import as_complex, complex_form, from_complex, generator, rotation_matrix

from .conftest import (
    FACTORS,
    FEW,
    LOG_SCALE,
    SEQ_LEN,
    SPECS,
    anywhere,
    assert_within,
    at,
    every_map,
    every_rotation,
    everywhere,
    turn,
)

FAR = 2**31
F64 = torch.float64


def magnitude(spec: RotarySpec) -> float:
    return spec.attention_factor(SEQ_LEN)


def floats(spec):
    """Whether its angles are formed in floating point."""
    return spec.learned or spec.coordinates == "real" or spec.angles != "exact"


def places(spec, count=5):
    """Random positions, far ones where phases are integers; and the rounding steps their angles may cost."""
    axes = (spec.axes.count,) if spec.axes.count > 1 else ()
    if spec.coordinates == "real":
        return 8 * torch.rand(*axes, count, dtype=F64) - 4, 2000
    far = 50 if floats(spec) else 2**31
    return torch.randint(-far, far, (*axes, count)), 2000 if floats(spec) else 8


def matrix(spec, positions):
    return rotation_matrix(at(spec, positions))


def at_zero(spec):
    """``[D, D]`` at position 0: the identity, times the attention factor where channels turn, permuted."""
    return matrix(spec, everywhere(spec, 0))[0]


def channels(spec):
    """By hand: for every pair the two channels that are read, and the two that are written."""
    start = spec.head_dim - spec.rotary_dim if spec.trailing else 0
    width = spec.rotary_dim // spec.blocks

    def in_layout(p, interleaved):
        if interleaved:
            return start + 2 * p, start + 2 * p + 1
        block, i = divmod(p, width // 2)
        return start + block * width + i, start + block * width + i + width // 2

    return [
        (in_layout(p, spec.interleaved), in_layout(p, spec.interleaved and not spec.permuted))
        for p in range(spec.pairs)
    ]


def by_hand(spec, position):
    """``[D, D]`` at one position (one number per axis), from the docstring of RotarySpec."""
    dense = torch.eye(spec.head_dim, dtype=F64)
    for first, second in (pair for pair, _ in channels(spec)):
        dense[first, first] = dense[second, second] = 0
    speeds = [spec.replace(second=None).inv_freq(SEQ_LEN)] * 2
    owners = [spec.axes.weights(spec.pairs)] * 2
    if spec.second is not None:
        other = spec.replace(axes=spec.second, second=None)
        speeds[1], owners[1] = other.inv_freq(SEQ_LEN), other.axes.weights(spec.pairs)
    factor = magnitude(spec)
    for p, ((a, b), (y_a, y_b)) in enumerate(channels(spec)):
        angles = []
        for speed, owner in zip(speeds, owners, strict=True):
            along = sum(x * owner[axis][p] for axis, x in enumerate(position))
            angle = along * spec.position_scale * float(speed[p])
            if spec.learned:
                angle *= math.exp(float(LOG_SCALE[p]))
            angles.append(-angle if spec.reverse else angle)
        dense[y_a, a], dense[y_a, b] = factor * math.cos(angles[0]), -factor * math.sin(angles[0])
        dense[y_b, a], dense[y_b, b] = factor * math.sin(angles[1]), factor * math.cos(angles[1])
    return dense


@every_map
def test_pair_by_pair(spec):
    """The docstring of RotarySpec, in Python floats; and the matrix is what a call does."""
    positions = torch.arange(1, 4 * spec.axes.count + 1).view(spec.axes.count, -1)
    positions = positions * (0.25 if spec.coordinates == "real" else 1)
    rotation = at(spec, positions if spec.axes.count > 1 else positions[0])
    got = rotation_matrix(rotation)
    for s, position in enumerate(positions.T.tolist()):
        assert_within(got[s], by_hand(spec, position), 200)
    x = torch.randn(got.shape[0], spec.head_dim, dtype=F64)
    assert_within(turn(x, rotation), (got @ x.unsqueeze(-1)).squeeze(-1), 8)


@every_rotation
def test_relative_law(spec):
    """(R_m q) . (R_n k) = R_0 q . R_{n-m} k, eq. 16 of RoFormer, also where the result is permuted."""
    (m, steps), (n, _) = places(spec), places(spec)
    assert_within(matrix(spec, m).mT @ matrix(spec, n), at_zero(spec).mT @ matrix(spec, n - m), steps)


@every_rotation
def test_rotations_add(spec):
    (m, steps), (n, _) = places(spec), places(spec)
    if spec.permuted:  # the second reads what the first did not write
        with pytest.raises(ValueError, match="must agree"):
            at(spec, m).compose(at(spec, n))
        return
    composed = at(spec, m).compose(at(spec, n))
    got, zero = rotation_matrix(composed), at_zero(spec)
    assert_within(got, zero @ matrix(spec, m + n), steps)
    assert_within(got, matrix(spec, n) @ matrix(spec, m), 8)
    assert composed.magnitude == magnitude(spec) ** 2


@every_rotation
def test_inverse_undoes(spec):
    rotation = at(spec, places(spec)[0])
    x, identity = torch.randn(5, spec.head_dim, dtype=F64), rotation.compose(rotation.inverse())
    assert_within(turn(turn(x, rotation), rotation.inverse()), x, 8)
    assert_within(turn(turn(x, rotation.inverse()), rotation), x, 8)
    assert_within(turn(x, identity), x, 8)
    assert identity.magnitude == pytest.approx(1.0, rel=1e-15)
    assert_within(turn(x, rotation.inverse().inverse()), turn(x, rotation), 8)


@every_map
def test_transpose_is_the_adjoint_and_the_gradient(spec):
    """x . R y = R^T x . y, and R^T keeps the attention factor that the inverse takes away."""
    rotation = at(spec, places(spec)[0])
    assert torch.equal(rotation_matrix(rotation.transpose()), rotation_matrix(rotation).mT)
    assert rotation.transpose().magnitude == rotation.magnitude == magnitude(spec)
    x, g = torch.randn(2, 2, 3, 5, spec.head_dim, dtype=F64)
    x.requires_grad_()
    (grad,) = torch.autograd.grad(apply_rotary(x, rotation), x, g)
    assert_within(grad, apply_rotary(g, rotation.transpose()), 8)


@every_rotation
def test_matrix_is_the_exponential_of_the_generator(spec):
    """An independent definition, and the only law that sees the sense of rotation: R(m) = A exp(sum m_a J_a)."""
    if spec.learned:
        return  # its generator is refused
    positions = everywhere(spec, -3, 0, 1, 4)
    positions = positions * torch.arange(1, spec.axes.count + 1).unsqueeze(-1) if spec.axes.count > 1 else positions
    per_axis = positions if spec.axes.count > 1 else positions.unsqueeze(0)
    j = generator(spec, SEQ_LEN)
    assert j.shape == (spec.axes.count, spec.head_dim, spec.head_dim) and torch.equal(j, -j.mT) and j.any()
    exponential = torch.matrix_exp(torch.einsum("as,aij->sij", per_axis.to(F64), j))
    # angles of tens of radians are rounded, and squared back from a small matrix: their size times eps
    assert_within(matrix(spec, positions), at_zero(spec) @ exponential, 1000 if floats(spec) else 320)


@every_rotation
def test_complex_form_turns_the_same_way(spec):
    rotation = at(spec, places(spec)[0])
    x = torch.randn(5, spec.head_dim, dtype=F64)
    product = torch.complex(*spec.layout.split(x)) * complex_form(rotation)
    expected = spec.layout.within(x, spec.layout.written().join(product.real, product.imag))
    assert_within(turn(x, rotation), expected, 8)


def test_the_other_way_is_the_other_sign(few):
    """To the bit."""
    m = anywhere(few, -FAR, FAR)
    assert torch.equal(at(few, -m).cos, at(few, m).cos) and torch.equal(at(few, -m).sin, -at(few, m).sin)


def test_complex_scores_need_the_conjugate(few):
    """(R_m q) . (R_n k) = Re sum q_i conj(k_i) e^{i (m - n) theta_i}."""
    q, k = torch.randn(2, 7, few.rotary_dim, dtype=F64)
    m, n = anywhere(few, 0, 5000), anywhere(few, 0, 5000)
    spec = few.replace(head_dim=few.rotary_dim, trailing=False)
    scores = (turn(q, at(spec, m)) * turn(k, at(spec, n))).sum(-1)
    a, b = (as_complex(t, interleaved=spec.interleaved) for t in (q, k))
    assert torch.equal(from_complex(a, interleaved=spec.interleaved), q)
    assert_within((a * b.conj() * complex_form(at(spec, m - n)) * magnitude(spec)).real.sum(-1), scores, 64)


# --- shift invariance of a whole attention matrix -------------------------------------------------------------------

SHIFTS = [1, 4096, 1_000_003, 2**24 + 1, 2**30]
SHIFTED = {name: SPECS[name] for name in (*FEW, "plain-one-full-interleaved")} | FACTORS


def scores(q, k, spec, shift):
    tokens = torch.arange(q.shape[-2])
    positions = tokens.double() / 8 + shift if spec.coordinates == "real" else tokens + shift
    positions = positions if spec.axes.count == 1 else positions.expand(spec.axes.count, -1)
    a, b = apply_rotary_qk(q, k, at(spec, positions, q.dtype))
    return a.double() @ b.double().mT


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("spec", SHIFTED.values(), ids=SHIFTED)
def test_scores_do_not_see_a_shift(spec, dtype):
    """Both q and k are off by their own rounding and no more: 4 roundings of |q| |k|, at any shift up to 2**30."""
    shifts = [1] if spec.coordinates == "real" else [20] if floats(spec) else SHIFTS
    q, k = torch.randn(2, 1, 2, 32, spec.head_dim, dtype=F64).to(dtype)
    size = magnitude(spec) ** 2 * q.double().norm(dim=-1).max() * k.double().norm(dim=-1).max()
    steps = 2000 if dtype == F64 and floats(spec) else 4 * torch.finfo(dtype).eps / 2**-52
    home = scores(q, k, spec, 0).to(dtype).double()
    for shift in shifts:
        assert_within(scores(q, k, spec, shift).to(dtype).double(), home, steps, float(size))
