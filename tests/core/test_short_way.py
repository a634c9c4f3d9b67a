"""Every call has one short way: given outputs, flat heads, packed projections, keys of their own, a norm, a cache.

What the extension takes there never comes to the checks in Python; what it declines is refused by them, in words.
"""

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary, apply_rotary_qk, apply_rotary_qkv, rotate
from phasor.caches import apply_rotary_to_cache
from phasor.rotary.apply import cached, calls, normed, packed
from phasor.rotary.kernels.native import kernel as native

pytestmark = pytest.mark.skipif(bool(native.MISSING), reason=native.MISSING)

SPEC = RotarySpec(head_dim=16, rotary_dim=12, base=100.0)
AT, OF_K = torch.tensor([3, 900]), torch.tensor([7, 8, 2**31])
R, R_K = Rotation.at(SPEC, AT), Rotation.at(SPEC, OF_K)


def tensors(*shapes, dtype=torch.bfloat16):
    torch.manual_seed(0)
    return [torch.randn(shape).to(dtype) for shape in shapes]


Q, K = (2, 4, 2, 16), (2, 1, 2, 16)  # [batch, heads, seq, head_dim]
FLAT, FLAT_K = (2, 2, 64), (2, 2, 16)
W = torch.linspace(0.5, 2, 16)


def with_norm(q, k, **rest):
    return apply_qk_norm_rotary(q, k, R, W, W, **rest)


def into_cache(q, k, **rest):
    caches, slots = [torch.zeros(1, 9, 1, 16, dtype=q.dtype) for _ in range(2)], torch.tensor([[1, 5], [7, -1]])
    out = rest.pop("out", (None,))[0]
    y = apply_rotary_to_cache(q, k, k, R, *caches, slots, out=out, **rest)
    return y, *caches


# name -> shapes of what is given, and the call
CALLS = {
    "q and k": ((Q, K), lambda q, k, **rest: apply_rotary_qk(q, k, R, **rest)),
    "by positions": ((Q, K), lambda q, k, **rest: rotate(q, k, AT, SPEC, **rest)),
    "flat heads": (
        (FLAT, FLAT_K),
        lambda q, k, **rest: apply_rotary_qk(q, k, R, tensor_format="bshd", num_heads=4, **rest),
    ),
    "flat heads by positions": (
        (FLAT, FLAT_K),
        lambda q, k, **rest: rotate(q, k, AT, SPEC, tensor_format="bshd", num_heads=4, **rest),
    ),
    "keys of their own": ((Q, (3, 1, 3, 16)), lambda q, k, **rest: apply_rotary_qk(q, k, R, k_rotation=R_K, **rest)),
    "keys of their own, flat, by positions": (
        (FLAT, (2, 3, 32)),
        lambda q, k, **rest: rotate(q, k, AT, SPEC, k_positions=OF_K, tensor_format="bshd", num_heads=4, **rest),
    ),
    "a norm": ((Q, K), with_norm),
    "a norm, flat heads": (
        (FLAT, FLAT_K),
        lambda q, k, **rest: with_norm(q, k, tensor_format="bshd", num_heads=4, **rest),
    ),
}
ONE = {
    "q alone": (Q, lambda x, **rest: apply_rotary(x, R, **rest)),
    "packed": ((2, 2, 3, 4, 16), lambda x, **rest: apply_rotary_qkv(x, R, **rest)),
    "packed, grouped": ((2, 2, 8, 16), lambda x, **rest: apply_rotary_qkv(x, R, num_heads=4, **rest)),
}


@pytest.fixture
def short(monkeypatch):
    """The long way is closed."""

    def long(*args, **kwargs):
        raise AssertionError("the long way")

    for module, name in ((calls, "check_angles"), (calls, "check_tensor"), (normed, "check_angles"),
                         (cached, "check_angles"), (packed, "check_tensor")):  # fmt: skip
        monkeypatch.setattr(module, name, long)


@pytest.mark.parametrize("kernel", ["auto", "native"])
@pytest.mark.parametrize("name", CALLS)
def test_pairs(name, kernel, request):
    shapes, call = CALLS[name]
    q, k = tensors(*shapes)
    expected = call(q, k, kernel="reference")
    request.getfixturevalue("short")
    for got in (call(q, k, kernel=kernel), call(q, k, kernel=kernel, out=(torch.empty_like(q), torch.empty_like(k)))):
        assert all(torch.equal(a, b) and a.is_contiguous() for a, b in zip(got, expected, strict=True))
    versions = q._version, k._version
    got = call(q, k, kernel=kernel, out=(q, k))
    assert got[0] is q and got[1] is k and q._version > versions[0] and k._version > versions[1]
    assert torch.equal(q, expected[0]) and torch.equal(k, expected[1])


@pytest.mark.parametrize("kernel", ["auto", "native"])
@pytest.mark.parametrize("name", ONE)
def test_one(name, kernel, request):
    shape, call = ONE[name]
    (x,) = tensors(shape)
    expected = call(x, kernel="reference")
    request.getfixturevalue("short")
    assert torch.equal(call(x, kernel=kernel), expected)
    wide = torch.zeros(*shape[:-1], 40, dtype=x.dtype)[..., 5:21]
    assert call(x, kernel=kernel, out=wide) is wide and torch.equal(wide, expected)
    before = x._version
    assert call(x, kernel=kernel, out=x) is x and torch.equal(x, expected) and x._version > before


def test_a_cache_and_an_output(request):
    q, k = tensors(Q, K)
    expected = into_cache(q, k, kernel="reference")
    request.getfixturevalue("short")
    for out in (None, torch.empty_like(q), q):
        got = into_cache(q.clone() if out is not q else q, k, out=(out,), kernel="native")
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert q._version and torch.equal(q, expected[0])


# What may not be written, and a word of the error: (q, k) -> out


def test_a_result_must_not_lie_where_keys_are_still_read():
    """A cache is filled tile by tile: rotated queries over keys of later tokens would be rotated again."""
    (q,) = tensors((1, 2, 40, 16))
    k, caches = q.clone(), [torch.zeros(1, 2, 40, 16, dtype=q.dtype) for _ in range(2)]
    rotation, slots = Rotation.at(SPEC, torch.arange(40)), torch.arange(40)[None]
    for name, out in (("k", k), ("v", (v := q.clone()))):
        given = (q, k, v if name == "v" else q, rotation, *caches, slots)
        with pytest.raises(ValueError, match=f"out must not overlap {name}"):
            apply_rotary_to_cache(*given, kv_layout="HND", out=out)


def test_a_result_must_not_lie_in_what_it_is_rotated_by():
    """Later tiles of tokens would be rotated by results of earlier ones."""
    memory, numbers = torch.zeros(40, 16), torch.arange(40 * 8)
    at = numbers[:40]
    rotation = Rotation.from_tables(memory[:, :6], torch.ones(40, 6), form="half", head_dim=16)
    x = torch.ones(1, 40, 16)
    message = "out must not overlap the rotation or its positions"
    with pytest.raises(ValueError, match=message):
        apply_rotary(x, rotation, out=memory[None])
    with pytest.raises(ValueError, match=message):
        rotate(x, None, at, SPEC, out=(numbers.view(torch.float32).view(1, 40, 16), None))
    caches = memory.view(1, 40, 1, 16), torch.zeros(1, 40, 1, 16)
    with pytest.raises(ValueError, match="k_cache must not overlap rotation"):
        apply_rotary_to_cache(x, x, x, rotation, *caches, at)
