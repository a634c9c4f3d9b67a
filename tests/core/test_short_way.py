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


def test_views_of_one_projection(short):
    """q and k in turns in one tensor: their stretches of memory meet, and no element is shared."""
    (qkv,) = tensors((2, 2, 6, 16))
    expected = apply_rotary_qkv(qkv, R, num_heads=4, kernel="native")
    q, k = qkv[:, :, :4], qkv[:, :, 4:5]
    apply_rotary_qk(q, k, R, tensor_format="bshd", out=(q, k))
    assert torch.equal(qkv, expected)


def test_a_cache_and_an_output(request):
    q, k = tensors(Q, K)
    expected = into_cache(q, k, kernel="reference")
    request.getfixturevalue("short")
    for out in (None, torch.empty_like(q), q):
        got = into_cache(q.clone() if out is not q else q, k, out=(out,), kernel="native")
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert q._version and torch.equal(q, expected[0])


def in_inference(x):
    with torch.inference_mode():
        return x.clone()


def halfway(q, k):
    whole = torch.zeros(q.numel() + 8, dtype=q.dtype)
    return whole[:-8].view_as(q), whole[-k.numel() :].view_as(k)


# What may not be written, and a word of the error: (q, k) -> out
FORBIDDEN = {
    "each other's": (lambda q, k: (q, k.new_zeros(1).expand_as(k)), "must not overlap itself"),
    "k in the end of q": (halfway, "must not overlap another"),
    "memory of q for k": (lambda q, k: (q, q.view(-1)[: k.numel()].view_as(k)), "must not overlap another"),
    "another shape": (lambda q, k: (q[..., :8], k), "out of q must be"),
    "another dtype": (lambda q, k: (q.float(), k), "out of q must be"),
    "another device": (lambda q, k: (q.to("meta"), k), "on cpu, as the result is"),
    "no pair": (lambda q, k: q, "out must be a tensor, or a pair"),
    "none for k": (lambda q, k: (q, None), "out must be a tensor, or a pair"),
    "no tensor": (lambda q, k: (q, 5), "out of k must be"),
    "a gradient": (lambda q, k: (q.clone().requires_grad_(), k), "cannot be written where a gradient is needed"),
    "of inference mode": (lambda q, k: (q, in_inference(k)), "was made in torch.inference_mode()"),
}


@pytest.mark.parametrize("name", FORBIDDEN)
@pytest.mark.parametrize("call", [name for name in CALLS if "flat" not in name])
def test_what_must_not_be_written(call, name):
    shapes, function = CALLS[call]
    q, k = tensors(*shapes)
    change, message = FORBIDDEN[name]
    out = change(q, k)
    versions, before = (q._version, k._version), (q.clone(), k.clone())
    with pytest.raises(ValueError, match=message.replace("(", r"\(").replace(")", r"\)")):
        function(q, k, out=out)
    assert (q._version, k._version) == versions and torch.equal(q, before[0]) and torch.equal(k, before[1])


def test_a_gradient_of_the_input_or_of_a_weight_forbids_it_too():
    q, k = tensors(Q, K)
    out = torch.empty_like(q), torch.empty_like(k)
    message = "cannot be written where a gradient is needed"
    with pytest.raises(ValueError, match=message):
        apply_rotary_qk(q, k.clone().requires_grad_(), R, out=out)
    with pytest.raises(ValueError, match=message):
        apply_qk_norm_rotary(q, k, R, W, W.clone().requires_grad_(), out=out)
    with torch.no_grad():
        apply_rotary_qk(q, k.clone().requires_grad_(), R, out=out)
    with torch.inference_mode():
        here = q.clone()
        assert apply_rotary(here, R, out=here) is here


def test_autograd_notices_what_was_written():
    """Of a packed projection in place and of a cache."""
    (x,) = tensors((2, 2, 8, 16), dtype=torch.float32)
    loss = (x * torch.ones(16, requires_grad=True)).sum()
    apply_rotary_qkv(x, R, num_heads=4, out=x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_result_must_not_lie_where_keys_are_still_read():
    """A cache is filled tile by tile: rotated queries over keys of later tokens would be rotated again."""
    (q,) = tensors((1, 2, 40, 16))
    k, caches = q.clone(), [torch.zeros(1, 2, 40, 16, dtype=q.dtype) for _ in range(2)]
    rotation, slots = Rotation.at(SPEC, torch.arange(40)), torch.arange(40)[None]
    for name, out in (("k", k), ("v", (v := q.clone()))):
        given = (q, k, v if name == "v" else q, rotation, *caches, slots)
        with pytest.raises(ValueError, match=f"out must not overlap {name}"):
            apply_rotary_to_cache(*given, kv_layout="HND", out=out)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_a_result_must_not_lie_in_what_it_is_rotated_by(kernel):
    """Later tiles of tokens would be rotated by results of earlier ones."""
    memory, numbers = torch.zeros(40, 16), torch.arange(40 * 8)
    at = numbers[:40]
    rotation = Rotation.from_tables(memory[:, :6], torch.ones(40, 6), form="half", head_dim=16)
    x = torch.ones(1, 40, 16)
    message = "out must not overlap the rotation or its positions"
    with pytest.raises(ValueError, match=message):
        apply_rotary(x, rotation, out=memory[None], kernel=kernel)
    with pytest.raises(ValueError, match=message):
        rotate(x, None, at, SPEC, out=(numbers.view(torch.float32).view(1, 40, 16), None), kernel=kernel)
    caches = memory.view(1, 40, 1, 16), torch.zeros(1, 40, 1, 16)
    with pytest.raises(ValueError, match="k_cache must not overlap rotation"):
        apply_rotary_to_cache(x, x, x, rotation, *caches, at, kernel=kernel)


def test_gradients_go_through_flat_heads_and_keys_of_their_own():
    for name in ("flat heads", "keys of their own"):
        shapes, call = CALLS[name]
        leaves = [x.requires_grad_() for x in tensors(*shapes, dtype=torch.float32)]
        up = tensors(*shapes, dtype=torch.float32)
        got, expected = (
            torch.autograd.grad(call(*leaves, kernel=kernel), leaves, up) for kernel in ("auto", "reference")
        )
        for a, b in zip(got, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=4 * torch.finfo(torch.float32).eps * 4)
