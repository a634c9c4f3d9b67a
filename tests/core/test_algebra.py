"""The laws of R(m), in float64, for every spec. With an attention factor A, R is A times a rotation.

Steps of phase add exactly, so the laws hold to a few roundings at any position; no tolerance grows with it.
"""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from phasor import RotarySpec, Rotation, apply_rotary_qk
from phasor.rotary.matrix import as_complex, complex_form, from_complex, generator, rotation_matrix

from .conftest import FEW, SEQ_LEN, SPECS, anywhere, assert_within, at, every_spec, everywhere, turn

FAR = 2**31
F64 = torch.float64


def factor(spec: RotarySpec) -> float:
    return spec.attention_factor(SEQ_LEN)


def turned(spec: RotarySpec) -> slice:
    return spec.layout.turning


def rest(spec: RotarySpec) -> torch.Tensor:
    """The channels that do not turn."""
    mask = torch.ones(spec.head_dim, dtype=torch.bool)
    mask[turned(spec)] = False
    return mask


def matrix(spec: RotarySpec, positions: torch.Tensor) -> torch.Tensor:
    return rotation_matrix(at(spec, positions))


@every_spec
def test_nothing_turns_at_zero(spec):
    x = torch.randn(1, spec.head_dim, dtype=F64)
    y = turn(x, at(spec, everywhere(spec, 0)))
    expected = x.clone()
    expected[..., turned(spec)] *= factor(spec)
    assert torch.equal(y, expected)


@every_spec
def test_every_pair_keeps_its_length(spec):
    x = torch.randn(7, spec.head_dim, dtype=F64)
    y = turn(x, at(spec, anywhere(spec, -FAR, FAR)))
    before, after = (torch.hypot(*spec.layout.split(t)) for t in (x, y))
    torch.testing.assert_close(after, before * factor(spec), rtol=8 * torch.finfo(F64).eps, atol=0)


@every_spec
def test_relative_law(spec):
    """R(m)^T R(n) = A R(n - m); with A = 1 this is eq. 16 of RoFormer."""
    m, n = anywhere(spec, -FAR, FAR), anywhere(spec, -FAR, FAR)
    got = matrix(spec, m).mT @ matrix(spec, n)
    expected = matrix(spec, n - m)
    expected[..., turned(spec), :] *= factor(spec)
    assert_within(got, expected, 8)


@every_spec
def test_rotations_add(spec):
    m, n = anywhere(spec, -FAR, FAR), anywhere(spec, -FAR, FAR)
    x, a = torch.randn(7, spec.head_dim, dtype=F64), factor(spec)
    expected = turn(x, at(spec, m + n))
    expected[..., turned(spec)] *= a
    assert_within(turn(turn(x, at(spec, m)), at(spec, n)), expected, 8)
    composed = at(spec, m).compose(at(spec, n))
    assert composed.magnitude == a * a
    assert_within(turn(x, composed), expected, 8)


@every_spec
def test_inverse_undoes(spec):
    x, rotation = torch.randn(7, spec.head_dim, dtype=F64), at(spec, anywhere(spec, -FAR, FAR))
    assert_within(turn(turn(x, rotation), rotation.inverse()), x, 8)
    assert_within(turn(turn(x, rotation.inverse()), rotation), x, 8)
    identity = rotation.compose(rotation.inverse())
    assert_within(turn(x, identity), x, 8)
    assert identity.magnitude == pytest.approx(1.0, rel=1e-15)
    assert_within(turn(x, rotation.inverse().inverse()), turn(x, rotation), 8)


@every_spec
def test_transpose_is_the_adjoint(spec):
    """x . R y = R^T x . y, and R^T keeps the attention factor that the inverse takes away."""
    rotation = at(spec, anywhere(spec, -FAR, FAR))
    dense, transposed = (rotation_matrix(r) for r in (rotation, rotation.transpose()))
    assert torch.equal(transposed, dense.mT)
    assert rotation.transpose().magnitude == rotation.magnitude == factor(spec)
    if factor(spec) == 1:
        assert torch.equal(rotation.transpose().cos, rotation.inverse().cos)
        assert torch.equal(rotation.transpose().sin, rotation.inverse().sin)


@every_spec
def test_linear_in_x(spec):
    x, y = torch.randn(2, 7, spec.head_dim, dtype=F64)
    rotation = at(spec, anywhere(spec, -FAR, FAR))
    assert_within(turn(2 * x - 3 * y, rotation), 2 * turn(x, rotation) - 3 * turn(y, rotation), 8)


@every_spec
def test_matrix_is_the_rotation(spec):
    x, positions = torch.randn(7, spec.head_dim, dtype=F64), anywhere(spec, -FAR, FAR)
    assert_within((matrix(spec, positions) @ x.unsqueeze(-1)).squeeze(-1), turn(x, at(spec, positions)), 8)


@every_spec
def test_matrix_is_orthogonal_with_determinant_one(spec):
    dense = matrix(spec, anywhere(spec, -FAR, FAR))
    squares = torch.ones(spec.head_dim, dtype=F64)
    squares[turned(spec)] = factor(spec) ** 2
    assert_within(dense.mT @ dense, torch.diag(squares).expand_as(dense), 8)
    determinant = torch.full((7,), factor(spec) ** spec.rotary_dim, dtype=F64)
    assert_within(torch.linalg.det(dense), determinant, 16 * spec.head_dim)


@every_spec
def test_blocks(spec):
    """Only the two channels of a pair see each other; the other channels keep themselves, to the bit."""
    dense = matrix(spec, anywhere(spec, -FAR, FAR))
    first, second = spec.layout.split(torch.arange(spec.head_dim))
    allowed = torch.eye(spec.head_dim, dtype=torch.bool)
    allowed[first, second] = allowed[second, first] = True
    assert not dense[:, ~allowed].any()
    outside = rest(spec)
    assert torch.equal(dense[:, outside][..., outside], torch.eye(int(outside.sum()), dtype=F64).expand(7, -1, -1))


def test_pairs_are_where_the_layout_says():
    """Written out by hand: which channels form pair i, for both layouts and all three places."""
    for interleaved, trailing, first, second in (
        (False, False, [0, 1], [2, 3]),
        (True, False, [0, 2], [1, 3]),
        (False, True, [2, 3], [4, 5]),
        (True, True, [2, 4], [3, 5]),
    ):
        spec = RotarySpec(head_dim=6, rotary_dim=4, interleaved=interleaved, trailing=trailing)
        (dense,) = matrix(spec, torch.tensor([1]))
        cos, sin = torch.tensor([1.0, 0.01], dtype=F64).cos(), torch.tensor([1.0, 0.01], dtype=F64).sin()
        assert_within(dense[first, first], cos, 2)
        assert_within(dense[second, second], cos, 2)
        assert_within(dense[first, second], -sin, 2)
        assert_within(dense[second, first], sin, 2)


@every_spec
def test_matrix_is_the_exponential_of_the_generator(spec):
    """An independent definition, and the only law that sees the sense of rotation: R(m) = A exp(sum m_a J_a)."""
    positions = anywhere(spec, -20, 20)
    per_axis = positions if spec.axes.count > 1 else positions.unsqueeze(0)
    j = generator(spec, SEQ_LEN)
    exponential = torch.matrix_exp(torch.einsum("as,aij->sij", per_axis.to(F64), j))
    exponential[..., turned(spec), :] *= factor(spec)
    # angles up to 20 * 7 radians are rounded, and squared back from a small matrix: their size times eps
    assert_within(matrix(spec, positions), exponential, 20 * 16)


@every_spec
def test_generator_is_skew(spec):
    j = generator(spec, SEQ_LEN)
    assert j.shape == (spec.axes.count, spec.head_dim, spec.head_dim)
    assert torch.equal(j, -j.mT)
    assert torch.count_nonzero(j) > 0


@every_spec
def test_complex_form(spec):
    x, rotation = torch.randn(7, spec.head_dim, dtype=F64), at(spec, anywhere(spec, -FAR, FAR))
    z = as_complex(x[..., turned(spec)], interleaved=spec.interleaved)
    assert torch.equal(from_complex(z, interleaved=spec.interleaved), x[..., turned(spec)])
    product = from_complex(z * complex_form(rotation), interleaved=spec.interleaved)
    assert_within(product, turn(x, rotation)[..., turned(spec)], 8)


def test_complex_scores_need_the_conjugate(few):
    """(R_m q) . (R_n k) = Re sum q_i conj(k_i) e^{i (m - n) theta_i}; without the conjugate it is another number."""
    q, k = torch.randn(2, 7, few.rotary_dim, dtype=F64)
    m, n = anywhere(few, 0, 5000), anywhere(few, 0, 5000)
    spec = few.replace(head_dim=few.rotary_dim, trailing=False)
    scores = (turn(q, at(spec, m)) * turn(k, at(spec, n))).sum(-1)
    a, b = (as_complex(t, interleaved=spec.interleaved) for t in (q, k))
    difference = complex_form(at(spec, m - n)) * factor(spec)
    assert_within((a * b.conj() * difference).real.sum(-1), scores, 64)
    assert ((a * b * difference).real.sum(-1) - scores).abs().max() > 0.1


@every_spec
def test_layouts_are_conjugate(spec):
    """Converting x, turning in the other layout and converting back is turning in the first: to the bit."""
    x, positions = torch.randn(7, spec.head_dim, dtype=F64), anywhere(spec, -FAR, FAR)
    other = spec.replace(interleaved=not spec.interleaved)
    p = spec.layout.permutation(other.layout)
    assert torch.equal(turn(x[..., p], at(other, positions)), turn(x, at(spec, positions))[..., p])


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(name=st.sampled_from(sorted(SPECS)), m=st.integers(-FAR, FAR), n=st.integers(-FAR, FAR))
def test_group_laws_at_any_position(name, m, n):
    spec = SPECS[name]
    a, b = everywhere(spec, m), everywhere(spec, n)
    f = factor(spec)
    outer = torch.ones(spec.head_dim, dtype=F64)
    outer[turned(spec)] = f
    scale = torch.outer(outer, torch.ones_like(outer))
    assert_within(matrix(spec, a).mT @ matrix(spec, b), matrix(spec, b - a) * scale, 8)
    assert_within(matrix(spec, a) @ matrix(spec, b), matrix(spec, a + b) * scale, 8)
    assert torch.equal(at(spec, -a).cos, at(spec, a).cos)
    assert torch.equal(at(spec, -a).sin, -at(spec, a).sin)


# --- shift invariance of a whole attention matrix -------------------------------------------------------------------

SHIFTS = [1, 4096, 1_000_003, 2**24 + 1, 2**30]


def scores(q, k, spec, shift):
    positions = torch.arange(q.shape[-2]) + shift
    positions = positions if spec.axes.count == 1 else positions.expand(spec.axes.count, -1)
    rotation = Rotation.at(spec, positions, SEQ_LEN, dtype=q.dtype)
    a, b = apply_rotary_qk(q, k, rotation)
    return a.double() @ b.double().mT


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("name", [*FEW, "plain-one-full-interleaved"])
def test_scores_do_not_see_a_shift(name, shift, dtype):
    """Both q and k are off by their own rounding and no more: 4 roundings of |q| |k|, at any shift up to 2**30."""
    spec = SPECS[name]
    q, k = torch.randn(2, 1, 2, 32, spec.head_dim, dtype=F64).to(dtype)
    home, away = scores(q, k, spec, 0), scores(q, k, spec, shift)
    size = spec.attention_factor(SEQ_LEN) ** 2 * q.double().norm(dim=-1).max() * k.double().norm(dim=-1).max()
    assert_within(away.to(dtype).double(), home.to(dtype).double(), 4 * torch.finfo(dtype).eps / 2**-52, float(size))


def test_float32_angles_do_see_a_shift():
    """The measure is not blind: the arithmetic of the shipped models fails it, and ever more with the shift."""
    spec = RotarySpec(head_dim=128, base=500_000.0, angles="float32")
    q, k = torch.randn(2, 1, 2, 32, 128)
    size = float(q.norm(dim=-1).max() * k.norm(dim=-1).max())
    drift = [float((scores(q, k, spec, s) - scores(q, k, spec, 0)).abs().max()) / size for s in (10_000, 1_000_003)]
    exact = spec.replace(angles="exact")
    kept = [float((scores(q, k, exact, s) - scores(q, k, exact, 0)).abs().max()) / size for s in (10_000, 1_000_003)]
    assert max(kept) < 4 * torch.finfo(torch.float32).eps
    assert drift[0] > 20 * max(kept)
    assert drift[1] > 20 * drift[0] / 10
