"""The laws for the factors that few models use: blocks, permuted, reverse, odd exponents, real, learned, second.

Written out pair by pair in Python, and as laws in float64. Integer phases keep them at any position; angles formed in
floats (real coordinates, learned frequencies, float64 angles) are off by their size times the rounding of float64.
"""

import dataclasses
import itertools
import json
import math

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary, apply_rotary_qk, rotate
from phasor.rotary.axes import Alternating, Listed
from phasor.rotary.matrix import complex_form, generator, rotation_matrix

from .conftest import FACTORS, LOG_SCALE, SECOND, SEQ_LEN, assert_within, at, everywhere, turn

F64 = torch.float64


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
    magnitude = spec.attention_factor(SEQ_LEN)
    for p, ((a, b), (y_a, y_b)) in enumerate(channels(spec)):
        angles = []
        for speed, owner in zip(speeds, owners, strict=True):
            along = sum(x * owner[axis][p] for axis, x in enumerate(position))
            angle = along * spec.position_scale * float(speed[p])
            if spec.learned:
                angle *= math.exp(float(LOG_SCALE[p]))
            angles.append(-angle if spec.reverse else angle)
        dense[y_a, a], dense[y_a, b] = magnitude * math.cos(angles[0]), -magnitude * math.sin(angles[0])
        dense[y_b, a], dense[y_b, b] = magnitude * math.sin(angles[1]), magnitude * math.cos(angles[1])
    return dense


@pytest.mark.parametrize(
    "spec", [*FACTORS.values(), *SECOND.values()], ids=[*FACTORS, *(f"second-{n}" for n in SECOND)]
)
def test_pair_by_pair(spec):
    positions = torch.arange(1, 4 * spec.axes.count + 1).view(spec.axes.count, -1)
    positions = positions * (0.25 if spec.coordinates == "real" else 1)
    got = matrix(spec, positions if spec.axes.count > 1 else positions[0])
    for s, position in enumerate(positions.T.tolist()):
        assert_within(got[s], by_hand(spec, position), 200)
    x = torch.randn(got.shape[0], spec.head_dim, dtype=F64)
    rotation = at(spec, positions if spec.axes.count > 1 else positions[0])
    assert_within(turn(x, rotation), (got @ x.unsqueeze(-1)).squeeze(-1), 8)


def test_nothing_turns_at_zero(factor):
    x = torch.randn(1, factor.head_dim, dtype=F64)
    written = dataclasses.replace(factor.layout, interleaved=factor.interleaved and not factor.permuted, permuted=False)
    pairs = factor.layout.split(x * factor.attention_factor(SEQ_LEN))
    expected = factor.layout.within(x, written.join(*pairs))
    assert torch.equal(turn(x, at(factor, everywhere(factor, 0))), expected)


def test_orthogonal_up_to_the_magnitude(factor):
    dense, steps = matrix(factor, places(factor)[0]), 8
    identity = at_zero(factor)
    assert_within(dense.mT @ dense, (identity.mT @ identity).expand_as(dense), steps)


def test_relative_law(factor):
    """(R_m q) . (R_n k) = R_0 q . R_{n-m} k, also where the result is permuted."""
    (m, steps), (n, _) = places(factor), places(factor)
    assert_within(matrix(factor, m).mT @ matrix(factor, n), at_zero(factor).mT @ matrix(factor, n - m), steps)


def test_rotations_add(factor):
    (m, steps), (n, _) = places(factor), places(factor)
    if factor.permuted:  # the second reads what the first did not write
        with pytest.raises(ValueError, match="must agree"):
            at(factor, m).compose(at(factor, n))
        return
    composed = at(factor, m).compose(at(factor, n))
    got, zero = rotation_matrix(composed), at_zero(factor)
    assert_within(got, zero @ matrix(factor, m + n), steps)
    assert_within(got, matrix(factor, n) @ matrix(factor, m), 8)
    assert composed.magnitude == factor.attention_factor(SEQ_LEN) ** 2


def test_inverse_undoes(factor):
    x, rotation = torch.randn(5, factor.head_dim, dtype=F64), at(factor, places(factor)[0])
    assert_within(turn(turn(x, rotation), rotation.inverse()), x, 8)
    assert_within(turn(turn(x, rotation.inverse()), rotation), x, 8)
    assert_within(turn(x, rotation.compose(rotation.inverse())), x, 8)
    assert_within(turn(x, rotation.inverse().inverse()), turn(x, rotation), 8)


@pytest.mark.parametrize(
    "spec", [*FACTORS.values(), *SECOND.values()], ids=[*FACTORS, *(f"second-{n}" for n in SECOND)]
)
def test_transpose_is_the_adjoint_and_the_gradient(spec):
    rotation = at(spec, places(spec)[0])
    dense, transposed = (rotation_matrix(r) for r in (rotation, rotation.transpose()))
    assert torch.equal(transposed, dense.mT)
    x = torch.randn(2, 3, 5, spec.head_dim, dtype=F64, requires_grad=True)
    g = torch.randn_like(x)
    (grad,) = torch.autograd.grad(apply_rotary(x, rotation), x, g)
    assert_within(grad, apply_rotary(g, rotation.transpose()), 8)
    assert torch.autograd.gradcheck(lambda x: apply_rotary(x, rotation), x[:1, :1].detach().requires_grad_())


def test_matrix_is_the_exponential_of_the_generator(factor):
    if factor.learned:
        return  # its generator is refused
    positions = everywhere(factor, -3, 0, 1, 4)
    positions = positions * torch.arange(1, factor.axes.count + 1).unsqueeze(-1) if factor.axes.count > 1 else positions
    per_axis = positions if factor.axes.count > 1 else positions.unsqueeze(0)
    exponential = torch.matrix_exp(torch.einsum("as,aij->sij", per_axis.to(F64), generator(factor, SEQ_LEN)))
    assert_within(matrix(factor, positions), at_zero(factor) @ exponential, 1000)


def test_complex_form_turns_the_same_way(factor):
    rotation = at(factor, places(factor)[0])
    x = torch.randn(5, factor.rotary_dim, dtype=F64)
    layout = dataclasses.replace(factor.layout, head_dim=factor.rotary_dim)
    product = torch.complex(*layout.split(x)) * complex_form(rotation)
    got = turn(x, rotation.replace(layout=layout))
    assert_within(got, layout.written().join(product.real, product.imag), 8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_scores_do_not_see_a_shift(factor, dtype):
    """By as much as integer phases hold exactly, and by little where angles are floats."""
    shift = 1 if factor.coordinates == "real" else 20 if floats(factor) else 2**30
    q, k = torch.randn(2, 1, 2, 16, factor.head_dim, dtype=F64).to(dtype)
    home, away = (scores(q, k, factor, s) for s in (0, shift))
    size = factor.attention_factor(SEQ_LEN) ** 2 * q.double().norm(dim=-1).max() * k.double().norm(dim=-1).max()
    steps = 4 * torch.finfo(dtype).eps / 2**-52 if dtype != F64 else 2000
    assert_within(away.to(dtype).double(), home.to(dtype).double(), steps, float(size))


def scores(q, k, spec, shift):
    tokens = torch.arange(q.shape[-2])
    positions = tokens.double() / 8 + shift if spec.coordinates == "real" else tokens + shift
    positions = positions if spec.axes.count == 1 else positions.expand(spec.axes.count, -1)
    a, b = apply_rotary_qk(q, k, at(spec, positions, q.dtype))
    return a.double() @ b.double().mT


def test_permuted_scores_are_those_of_interleaved_pairs():
    permuted = FACTORS["permuted"]
    plain, positions = permuted.replace(permuted=False), torch.arange(7) + 1000
    q, k = torch.randn(2, 1, 2, 7, 16, dtype=F64)
    (a, b), (c, d) = (apply_rotary_qk(q, k, at(s, positions)) for s in (permuted, plain))
    assert_within(a @ b.mT, c @ d.mT, 8)
    assert torch.equal(a[..., :8], c[..., 0::2])
    assert torch.equal(a[..., 8:], c[..., 1::2])


# --- second members turned apart: not a rotation --------------------------------------------------------------------


def test_second_is_not_orthogonal(second):
    dense = matrix(second, places(second)[0])
    zero = at_zero(second)
    assert (dense.mT @ dense - zero.mT @ zero).abs().max() > 0.1
    assert "not orthogonal" in second.describe()


def test_second_equal_to_the_first_is_plain():
    spec = RotarySpec(head_dim=16)
    twice = spec.replace(second=spec.axes)
    x, positions = torch.randn(1, 2, 5, 16), torch.tensor([0, 1, 7, 100, 2**31])
    a, b = (apply_rotary(x, Rotation.at(s, positions)) for s in (spec, twice))
    assert torch.equal(a, b)


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


# --- padding, learned scales, real coordinates ----------------------------------------------------------------------


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


def test_float64_angles_are_near_the_exact_ones():
    positions = torch.tensor([0, 1, 1000, 100_000])
    exact = Rotation.at(RotarySpec(head_dim=16), positions, dtype=F64)
    near = Rotation.at(RotarySpec(head_dim=16, angles="float64", tables="float32"), positions, dtype=F64)
    assert_within(near.sin, exact.sin, 100_000)
    assert near.sin.dtype == F64
    tables = Rotation.at(RotarySpec(head_dim=16, angles="float64"), positions, dtype=torch.bfloat16)
    assert tables.cos.dtype == torch.bfloat16


# --- axes ------------------------------------------------------------------------------------------------------------


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


# --- data ------------------------------------------------------------------------------------------------------------

ALL = {**FACTORS, **{f"second-{name}": spec for name, spec in SECOND.items()}}


def test_there_and_back_through_json():
    for spec in ALL.values():
        for variant in (spec, spec.replace(angles="float32", tables="promoted"), spec.replace(angles="float64")):
            back = RotarySpec.from_dict(json.loads(json.dumps(variant.to_dict(), allow_nan=False)))
            assert back == variant
            assert hash(back) == hash(variant)


def test_they_differ_and_say_so():
    for (_, a), (_, b) in itertools.combinations(ALL.items(), 2):
        assert a != b
        assert a.diff(b)
        assert a.describe() != b.describe()


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"blocks": 2}, "halves in each of 2 blocks, base 10000"),
        ({"interleaved": True, "permuted": True}, "interleaved, written as halves, base 10000"),
        ({"reverse": True}, "halves, rotated backwards, base 10000"),
        ({"exponent_dim": 15}, "base 10000, exponents over 15, no scaling"),
        ({"learned": True}, "base 10000, learned log-scale, no scaling"),
        (
            {"coordinates": "real", "position_scale": 2.5},
            "one axis, real coordinates, positions times 2.5, exact angles",
        ),
        ({"angles": "float64"}, "one axis, float64 angles (tables: activation)"),
        ({"second": Listed((0,) * 8)}, "second members by listed(axis=[8 values], axes=1) (not orthogonal), exact"),
        ({"axes": Alternating((1, 0))}, "alternating(order=(1, 0)), exact angles"),
    ],
)
def test_describe(fields, words):
    assert words in RotarySpec(head_dim=16, **fields).describe()


def test_inv_freq_of_an_odd_width():
    """Closed form: 11 frequencies over 21."""
    got = RotarySpec(head_dim=42, rotary_dim=22, exponent_dim=21, base=100.0).inv_freq()
    assert_within(got, 100.0 ** (-2 * torch.arange(11, dtype=F64) / 21), 4)


# --- compilers -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("angles", ["exact", "float32", "float64"])
@pytest.mark.parametrize("name", ALL)
def test_compile(name, angles):
    spec = ALL[name].replace(angles=angles)
    log_scale = LOG_SCALE.float() if spec.learned else None

    def call(q, k, positions):
        if spec.learned:
            rotation = Rotation.at(spec, positions, SEQ_LEN, log_scale=log_scale)
            return apply_rotary_qk(q, k, rotation.padded() if rotation.magnitude == 1 else rotation)
        return rotate(q, k, positions, spec, seq_len=SEQ_LEN)

    torch.compiler.reset()
    compiled = torch.compile(call, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (5, 9):
        q, k = torch.randn(1, 3, length, spec.head_dim), torch.randn(1, 2, length, spec.head_dim)
        positions, _ = places(spec, length)
        for got, expected in zip(compiled(q, k, positions), call(q, k, positions), strict=True):
            assert torch.equal(got, expected)
