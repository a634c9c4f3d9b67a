"""Rotated keys moved: one rotation, of magnitude 1, gives what a fresh rotation of the raw keys gives.

The law is the relative one (RoFormer, arXiv:2104.09864, eq. 16); tolerances are roundings of the number format.
"""

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary, reposition, shift
from phasor.caches import change_spec, unrotate
from phasor.rotary.axes import Sections
from phasor.rotary.scaling import DynamicNTK, LongRoPE, YaRN
from refused import refused

from .conftest import LOG_SCALE, SECOND, SEQ_LEN, anywhere, assert_within, every_rotation

F64 = torch.float64
FAR = 2**30


def fixed(spec: RotarySpec) -> RotarySpec:
    return spec.at_length(SEQ_LEN)


def learned(spec: RotarySpec) -> torch.Tensor | None:
    return LOG_SCALE if spec.learned else None


def fresh(x: torch.Tensor, positions: torch.Tensor, spec: RotarySpec, **how) -> torch.Tensor:
    return apply_rotary(x, Rotation.at(spec, positions, log_scale=learned(spec), dtype=x.dtype), **how)


def keys(spec: RotarySpec, dtype: torch.dtype = F64, tokens: int = 7) -> torch.Tensor:
    return torch.randn(2, 3, tokens, spec.head_dim, dtype=dtype)


def exact(spec: RotarySpec) -> bool:
    return spec.angles == "exact" and spec.coordinates == "integer" and not spec.learned


def steps_at(spec: RotarySpec) -> float:
    """Integer phases are exact at every distance; of others an angle is rounded at its size."""
    return 16 if exact(spec) else 20_000


@every_rotation
def test_moved_keys_are_those_of_a_fresh_rotation(spec):
    spec = fixed(spec)
    reach = FAR if exact(spec) else 1000
    x, old, new = keys(spec), anywhere(spec, -reach, reach), anywhere(spec, -reach, reach)
    k = fresh(x, old, spec)
    moved = reposition(k, old, new, spec, log_scale=learned(spec))
    assert_within(moved, fresh(x, new, spec), steps_at(spec))


@every_rotation
def test_a_shift_is_one_angle_for_all_tokens(spec):
    spec = fixed(spec)
    if spec.angles != "exact":
        return
    x, old = keys(spec), anywhere(spec, -1000, 1000)
    by = tuple(range(-5, -5 + 3 * spec.axes.count, 3))
    distance = torch.tensor(by)[0] if len(by) == 1 else torch.tensor(by)[:, None]
    moved = shift(fresh(x, old, spec), by[0] if len(by) == 1 else by, spec, log_scale=learned(spec))
    assert_within(moved, fresh(x, old + distance, spec), steps_at(spec))


@every_rotation
def test_raw_keys_come_back(spec):
    spec = fixed(spec)
    x, at = keys(spec), anywhere(spec, -1000, 1000)
    assert_within(unrotate(fresh(x, at, spec), at, spec, log_scale=learned(spec)), x, steps_at(spec))


@every_rotation
def test_another_spec(spec):
    """From a plain ladder to the scaled one and back: the factor comes in once, and goes."""
    spec = fixed(spec)
    if spec.frequencies or spec.scaling is None:
        return
    plain = spec.replace(scaling=None)
    x, at = keys(spec), anywhere(spec, -1000, 1000)
    there = change_spec(fresh(x, at, plain), at, plain, spec, log_scale=learned(spec))
    assert_within(there, fresh(x, at, spec), steps_at(spec))
    assert_within(change_spec(there, at, spec, plain, log_scale=learned(spec)), fresh(x, at, plain), steps_at(spec))


@pytest.mark.parametrize("tables", ["activation", "float32", "rounded", "promoted"])
def test_angles_of_the_model_s_own_code(tables):
    """float32 angles lose 1e-3 at 16k and more beyond, alike in a fresh rotation: the moved key has the same ones."""
    spec = RotarySpec(head_dim=16, base=500_000.0, angles="float32", tables=tables)
    x, old, new = keys(spec, torch.float32), torch.arange(7), torch.arange(7) + 100_003
    off = (fresh(x, new, spec) - fresh(x, new, spec.replace(angles="exact"))).abs().max()
    assert off > 1e-3
    assert_within(reposition(fresh(x, old, spec), old, new, spec), fresh(x, new, spec), 8)


def test_yarns_factor_is_never_squared():
    """1.1386 for YaRN(4), 0.1 ln 4 + 1 (arXiv:2309.00071, eq. 22): moving by tables that hold it gives its square."""
    spec = RotarySpec(head_dim=128, base=1e6, scaling=YaRN(4.0, 32768))
    x, old, new = keys(spec, torch.float32), torch.arange(7), torch.arange(7) + 30_000
    k = fresh(x, old, spec)
    moves = shift(k, 30_000, spec), reposition(k, old, new, spec)
    for moved in moves:
        torch.testing.assert_close(moved.norm(dim=-1), x.norm(dim=-1) * 1.138629436, rtol=1e-6, atol=0)
    tables = Rotation.at(spec, new), Rotation.at(spec, old).transpose()
    squared = apply_rotary(apply_rotary(k, tables[1]), tables[0])
    torch.testing.assert_close(squared.norm(dim=-1), k.norm(dim=-1) * 1.138629436**2, rtol=1e-5, atol=0)
    torch.testing.assert_close(unrotate(k, old, spec).norm(dim=-1), x.norm(dim=-1), rtol=1e-6, atol=0)


def test_a_change_multiplies_by_the_ratio_of_both_factors():
    short, long = (LongRoPE((1.0,) * 8, (2.0,) * 8, 128, 4.0, attention=1.5, attention_short=1.25),) * 2
    old, new = (RotarySpec(head_dim=16, scaling=s).at_length(n) for s, n in ((short, 100), (long, 400)))
    x, at = keys(old), torch.arange(7)
    k = fresh(x, at, old)
    moved = change_spec(k, at, old, new)
    torch.testing.assert_close(moved.norm(dim=-1), k.norm(dim=-1) * 1.2, rtol=1e-12, atol=0)
    assert_within(moved, fresh(x, at, new), 16)


def test_one_rounding_for_a_move():
    """Keys rounded when they were first rotated, moved once: sqrt(2) of the error of a fresh rotation."""
    spec = RotarySpec(head_dim=128, base=5e5)
    x, old, new = keys(spec, tokens=256).bfloat16(), torch.arange(256) + 100_000, torch.arange(256)
    truth = fresh(x.double(), new, spec)
    one, once = (
        float((k.double() - truth).norm() / truth.norm())
        for k in (reposition(fresh(x, old, spec), old, new, spec), fresh(x, new, spec))
    )
    assert 1.3 < one / once < 1.5


def test_gradients_pass():
    spec = RotarySpec(head_dim=8, scaling=YaRN(4.0, 128))
    k, at = torch.randn(1, 2, 3, 8, dtype=F64, requires_grad=True), torch.arange(3)
    other = RotarySpec(head_dim=8, base=500.0)
    for call in (
        lambda k: shift(k, 3, spec),
        lambda k: reposition(k, at, at.flip(0), spec),
        lambda k: change_spec(k, at, spec, other),
    ):
        assert torch.autograd.gradcheck(call, k)
    k = keys(spec, torch.float32, tokens=3).requires_grad_()
    (grad,) = torch.autograd.grad(change_spec(k, at, spec, other).sum(), k)
    back = change_spec(torch.ones_like(k), at, other, spec) / spec.attention_factor() ** 2  # the transpose
    torch.testing.assert_close(grad, back, rtol=0, atol=1e-6)


SPEC = RotarySpec(head_dim=8)
DYNAMIC = RotarySpec(head_dim=8, scaling=DynamicNTK(2.0, 128))
AT = torch.arange(7)
K = torch.zeros(2, 3, 7, 8)
THREE_AXES, TWO_ANGLES = SPEC.replace(axes=Sections((2, 1, 1))), SECOND["halves"]
REFUSED = """
shift(K, 2 ** 31 + 1, SPEC) => positions before and after a shift … 2**31 … 2147483649
shift(K, 2 ** 70, SPEC) => by must be at most 2**31
reposition(K, AT, AT - 2 ** 32, SPEC) => old and new must be at most 2**31 apart … 4294967296
shift([1.0], 1, SPEC) => k must be a torch tensor, got builtins.list
reposition(K, AT + 2 ** 62, AT - 2 ** 62, SPEC) => old and new must be at most 2**31 apart
shift(K, 1, SPEC.replace(learned=True)) => log_scale must be the trained tensor
shift(K, 1, THREE_AXES) => by must be a tuple with an integer for each of 3 axes …
    got 1
shift(K, 0.5, SPEC) => by must be an integer … 0.5
shift(K, AT, SPEC) => by must be an integer, the same for all tokens
shift(K, 1, DYNAMIC) => spec must be at one length … dynamic … spec.at_length(n)
change_spec(K, AT, SPEC, DYNAMIC) => new must be at one length … new.at_length(n)
unrotate(K, AT, TWO_ANGLES) => spec must have an inverse … keep raw keys
shift(K, 1, None) => spec must be a RotarySpec, got NoneType
shift(K, 1, SPEC.replace(angles='float32')) => spec must have exact angles … reposition
shift(K[..., :6], 1, SPEC) => k must have the 8 channels … (2, 3, 7, 6)
shift(K.long(), 1, SPEC) => k must be float64, float32, float16 or bfloat16
reposition(K, AT, AT[:5], SPEC) => old and new must have the same shape
change_spec(K, AT, SPEC, SPEC.replace(interleaved=True)) => old and new must agree in (layout, axes, coordinates)
shift(K, 1, SPEC, out=K[:, :, :6]) => out must be torch.float32
shift(K, 1, SPEC, tensor_format='hbsd') => tensor_format must be
shift(K, 1, SPEC, kernel='none') => kernel must be 'auto'
"""
test_refused = refused(REFUSED, globals())
