"""out= and in place: what is written, and what is refused."""

import copy
import dataclasses

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary, apply_rotary_qk, apply_rotary_qkv, rotate

from .conftest import FACTORS, SECOND, anywhere, assert_refused, at, without_native

SPEC = RotarySpec(head_dim=16, rotary_dim=12)
ROTATION = Rotation.at(SPEC, torch.arange(7) + 100)


@pytest.fixture(params=[None, 1, 2**40], ids=["native", "in blocks", "at once"], autouse=True)
def sizes(request, monkeypatch):
    if request.param is not None:
        without_native(monkeypatch)
        monkeypatch.setattr("phasor.rotary.kernels.eager.BLOCK", request.param)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [*FACTORS, *SECOND])
def test_in_place_and_out_have_the_bits_of_the_new_tensor(name, dtype, kernel):
    spec = (FACTORS | SECOND)[name]
    x, rotation = torch.randn(2, 3, 7, spec.head_dim).to(dtype), at(spec, anywhere(spec, 0, 5000), dtype)
    expected = apply_rotary(x, rotation)
    for make in (torch.empty_like, lambda x: torch.empty(2, 7, 3, x.shape[-1], dtype=dtype).transpose(1, 2)):
        out = make(x)
        assert apply_rotary(x, rotation, out=out, kernel=kernel) is out
        assert torch.equal(out, expected)
    strided = x.transpose(1, 2).contiguous().transpose(1, 2)
    for y in (x, strided):
        assert apply_rotary(y, rotation, out=y, kernel=kernel) is y
        assert torch.equal(y, expected)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_both_in_place_in_one_packed_tensor(kernel):
    """q and k that lie in turns in one tensor, token by token: no element of one is an element of the other."""
    qkv = torch.randn(2, 7, 6, 16)
    q, k = (qkv[:, :, part].transpose(1, 2) for part in (slice(0, 3), slice(3, 5)))
    values, expected = qkv[:, :, 5].clone(), apply_rotary_qk(q.clone(), k.clone(), ROTATION)
    a, b = apply_rotary_qk(q, k, ROTATION, out=(q, k), kernel=kernel)
    assert a is q
    assert b is k
    assert torch.equal(q, expected[0])
    assert torch.equal(k, expected[1])
    assert torch.equal(qkv[:, :, 5], values)


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_writing_is_counted(kernel):
    """Autograd must notice that what it kept was overwritten."""
    weight = torch.randn(2, 3, 7, 16, requires_grad=True)
    x = torch.randn(2, 3, 7, 16)
    before = x._version
    loss = (weight * x).sum()
    apply_rotary(x, ROTATION, out=x, kernel=kernel)
    assert x._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_promoted_results_need_a_wide_output():
    spec = SPEC.replace(angles="float32", tables="promoted")
    rotation = Rotation.at(spec, torch.arange(7), dtype=torch.bfloat16)
    x = torch.randn(3, 7, 16).bfloat16()
    expected = apply_rotary(x, rotation)
    assert torch.equal(apply_rotary(x, rotation, out=torch.empty_like(expected)), expected)
    out = torch.empty_like(expected)
    assert torch.equal(rotate(x, None, torch.arange(7), spec, out=(out, None))[0], expected)
    assert_refused(lambda: apply_rotary(x, rotation, out=x), ["out must be torch.float32 (3, 7, 16)", "bfloat16"])


def test_no_gradient_no_objection():
    x = torch.randn(3, 7, 16, requires_grad=True)
    out = torch.empty(3, 7, 16)
    with torch.no_grad():
        assert torch.equal(apply_rotary(x, ROTATION, out=out), apply_rotary(x, ROTATION))


@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_in_place_through_another_view(kernel):
    """Along an axis of size 1 nobody goes, so its stride makes no other memory of it."""
    x = torch.randn(1, 3, 7, 16)
    expected = apply_rotary(x, ROTATION, kernel="reference")
    out = x.as_strided(x.shape, (1, *x.stride()[1:]))
    assert torch.equal(apply_rotary(x, ROTATION, out=out, kernel=kernel), expected) and torch.equal(x, expected)


def with_gradient(name):
    """A rotation by learned frequencies, of which one table is asked for its gradient."""
    return dataclasses.replace(ROTATION, **{name: getattr(ROTATION, name).clone().requires_grad_()})


X, K = torch.zeros(2, 3, 7, 16), torch.zeros(2, 1, 7, 16)
MEMORY = torch.zeros(4000)
ROW = MEMORY[:672].view(2, 3, 7, 16)
REFUSED = {
    "shape": (lambda: apply_rotary(X, ROTATION, out=K), ["out must be torch.float32 (2, 3, 7, 16)", "(2, 1, 7, 16)"]),
    "dtype": (lambda: apply_rotary(X, ROTATION, out=X.half()), ["out must be torch.float32", "torch.float16"]),
    "device": (lambda: apply_rotary(X, ROTATION, out=X.to("meta")), ["out must be", "on cpu", "on meta"]),
    "no tensor": (lambda: apply_rotary(X, ROTATION, out=True), ["out must be", "got bool"]),
    "one for two": (
        lambda: apply_rotary_qk(X, K, ROTATION, out=X),
        ["out must be a tensor, or a pair", "(2, 3, 7, 16)"],
    ),
    "two for one": (lambda: apply_rotary_qk(X, None, ROTATION, out=(X, K)), ["out must be a tensor, or a pair"]),
    "k": (lambda: apply_rotary_qk(X, K, ROTATION, out=(X, X)), ["out of k must be torch.float32 (2, 1, 7, 16)"]),
    "expanded": (
        lambda: apply_rotary(X, ROTATION, out=torch.zeros(3, 7, 16).expand(2, 3, 7, 16)),
        ["out must not overlap itself, got strides (0, 112, 16, 1)"],
    ),
    "windows": (
        lambda: apply_rotary(X, ROTATION, out=torch.zeros(2, 3, 22).unfold(-1, 16, 1)),
        ["out must not overlap itself"],
    ),
    "shifted": (
        lambda: apply_rotary(ROW, ROTATION, out=MEMORY[1:673].view(2, 3, 7, 16)),
        ["out must not overlap another input or output in part"],
    ),
    "other strides": (
        lambda: apply_rotary(ROW, ROTATION, out=MEMORY[:672].view(2, 7, 3, 16).transpose(1, 2)),
        ["out must not overlap"],
    ),
    "one for both": (
        lambda: apply_rotary_qk(X, X.clone(), ROTATION, out=(K := torch.zeros_like(X), K)),
        ["not overlap"],
    ),
    "exchanged": (
        lambda: apply_rotary_qk(a := X.clone(), b := X.clone(), ROTATION, out=(b, a)),
        ["out must not overlap another input"],
    ),
    "gradient of x": (
        lambda: apply_rotary(X.clone().requires_grad_(), ROTATION, out=X.clone()),
        ["out cannot be written where a gradient is needed", "torch.no_grad()"],
    ),
    **{
        f"gradient of {name}": (
            lambda name=name: apply_rotary(X, with_gradient(name), out=X.clone()),
            ["out cannot be written where a gradient is needed"],
        )
        for name in ("cos", "sin")
    },
    "gradient of out": (
        lambda: apply_rotary(X, ROTATION, out=X.clone().requires_grad_()),
        ["out cannot be written where a gradient is needed"],
    ),
    "gradient of tables": (
        lambda: apply_rotary(X, ROTATION.replace(cos=ROTATION.cos.clone().requires_grad_()), out=X.clone()),
        ["out cannot be written where a gradient is needed"],
    ),
}


@pytest.mark.parametrize("call, fragments", REFUSED.values(), ids=REFUSED)
def test_refused(call, fragments):
    assert_refused(call, fragments)


def test_overlap_is_told_exactly():
    """Against a list of all addresses, for random views of one stretch of memory."""
    from phasor.rotary.apply.outputs import overlap, overlaps_itself

    torch.manual_seed(0)
    memory = torch.zeros(400)
    seen = set()
    for _ in range(3000):
        views = []
        for _ in range(2):
            shape = torch.randint(1, 4, (3,)).tolist()
            stride = [int(torch.tensor([1, 2, 3, 4, 6, 12])[torch.randint(0, 6, ())]) for _ in range(3)]
            views.append(memory.as_strided(shape, stride, int(torch.randint(0, 30, ()))))
        a, b = (
            {int(i) for i in torch.arange(400).as_strided(v.shape, v.stride(), v.storage_offset()).flatten()}
            for v in views
        )
        assert overlap(*views) == bool(a & b)
        seen.add(bool(a & b))
        if len(a) < views[0].numel():
            assert overlaps_itself(views[0])  # in doubt it may say so of others, too
    assert seen == {True, False}
    assert not overlaps_itself(torch.zeros(2, 3, 4).permute(2, 0, 1))


def test_compiled_code_may_write_in_place():
    def turn(x):
        apply_rotary(x, ROTATION, out=x)
        return x + 1

    x = torch.randn(3, 7, 16)
    expected = apply_rotary(x, ROTATION)
    got = torch.compile(turn, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(x, expected)
    torch.testing.assert_close(got, expected + 1)


def test_exchanged_outputs_are_refused_for_k_of_other_tokens_too():
    a, b = torch.randn(1, 2, 7, 16), torch.randn(1, 2, 7, 16)
    other, kept = Rotation.at(SPEC, torch.arange(7) + 5), a.clone()
    assert_refused(
        lambda: apply_rotary_qk(a, b, ROTATION, k_rotation=other, out=(b, a)), ["out must not overlap another input"]
    )
    assert torch.equal(a, kept)
    expected = apply_rotary(a, ROTATION), apply_rotary(b, other)
    apply_rotary_qk(a, b, ROTATION, k_rotation=other, out=(a, b))
    assert torch.equal(a, expected[0])
    assert torch.equal(b, expected[1])


def test_the_output_of_k_has_the_dtype_that_its_own_rotation_gives():
    q, k = (torch.randn(1, 2, n, 16).bfloat16() for n in (7, 5))
    rotation = Rotation.at(SPEC, torch.arange(7), dtype=torch.bfloat16)
    wide = Rotation.at(SPEC, torch.arange(5), dtype=torch.float32).replace(promoted=True)
    expected = apply_rotary(k, wide)
    out = torch.empty_like(q), torch.empty(1, 2, 5, 16)
    assert apply_rotary_qk(q, k, rotation, k_rotation=wide, out=out)[1] is out[1]
    assert torch.equal(out[1], expected)
    with pytest.raises(ValueError, match=r"out of k must be torch.float32"):
        apply_rotary_qk(q, k, rotation, k_rotation=wide, out=(q, k))


def test_an_output_must_not_overlap_the_tables_of_k():
    memory = torch.zeros(2 * 7 * 16)
    other = ROTATION.replace(cos=memory[: ROTATION.cos.numel()].view_as(ROTATION.cos))
    out = torch.zeros(1, 2, 7, 16), memory.view(1, 2, 7, 16)
    with pytest.raises(ValueError, match="out must not overlap the rotation"):
        apply_rotary_qk(torch.randn(1, 2, 7, 16), torch.randn(1, 2, 7, 16), ROTATION, k_rotation=other, out=out)


def test_nothing_is_written_when_k_is_refused():
    q, out = torch.randn(1, 2, 7, 16), torch.zeros(1, 2, 7, 16)
    k, other = torch.randn(1, 2, 6, 16), Rotation.at(SPEC, torch.arange(6))
    with pytest.raises(ValueError, match="out"):
        apply_rotary_qk(q, k, ROTATION, k_rotation=other, out=(out, torch.zeros(1, 2, 5, 16)))
    assert not out.any()


def test_tables_that_are_filled_again_turn_by_their_new_values():
    spec = RotarySpec(head_dim=8)
    filled, other = (Rotation.at(spec, torch.tensor([p])) for p in (3, 11))
    x = torch.randn(1, 2, 1, 8)
    apply_rotary(x, filled)
    filled.cos.copy_(other.cos)
    filled.sin.copy_(other.sin)
    assert torch.equal(apply_rotary(x, filled), apply_rotary(x, other))


def test_tables_of_inference_mode_that_are_filled_again():
    """They do not count what is written to them."""
    spec, x = RotarySpec(head_dim=8), torch.randn(1, 2, 1, 8)
    with torch.inference_mode():
        filled, other = (Rotation.at(spec, torch.tensor([p])) for p in (3, 11))
        mixed = Rotation.at(spec, torch.tensor([3])).replace(sin=filled.sin)
        for rotation in (filled, mixed):
            apply_rotary(x, rotation)
        filled.cos.copy_(other.cos)
        filled.sin.copy_(other.sin)
        mixed.cos.copy_(other.cos)
        for rotation in (filled, mixed):
            assert torch.equal(apply_rotary(x, rotation), apply_rotary(x, other))


def test_a_copy_whose_tables_are_filled_again():
    """Tables of a copy count anew what is written to them, and may reach the count of those that were copied."""
    spec, x = RotarySpec(head_dim=8), torch.randn(1, 2, 1, 8)
    filled, other = (Rotation.at(spec, torch.tensor([p])) for p in (3, 11))
    for count in range(4):
        apply_rotary(x, filled)
        copied = copy.deepcopy(filled)
        copied.cos.copy_(other.cos)
        copied.sin.copy_(other.sin)
        assert torch.equal(apply_rotary(x, copied), apply_rotary(x, other)), count
        filled.cos.copy_(filled.cos.clone())
        filled.sin.copy_(filled.sin.clone())


def test_one_token_of_q_and_k_comes_back_in_memory_of_their_own():
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.tensor([3]))
    q, k = apply_rotary_qk(torch.randn(1, 4, 1, 16), torch.randn(1, 2, 1, 16), rotation)
    assert q.untyped_storage().data_ptr() != k.untyped_storage().data_ptr()


@pytest.mark.parametrize("out", [torch.zeros(1, 7, 3, 2, 15), torch.zeros(7, 3, 2, 16), "out"])
def test_a_packed_projection_refuses_an_output_of_another_shape(out):
    assert_refused(
        lambda: apply_rotary_qkv(torch.randn(1, 7, 3, 2, 16), ROTATION, out=out), ["out must have the shape of qkv, "]
    )


@pytest.mark.parametrize("heads", [0, -1, 1.0, True])
def test_a_packed_projection_needs_a_number_of_heads(heads):
    assert_refused(lambda: apply_rotary_qkv(torch.randn(1, 7, 6, 16), ROTATION, num_heads=heads), ["num_heads must be"])


@pytest.mark.parametrize("tokens", [3, 4000], ids=["small", "in blocks"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("with_k", [False, True])
@pytest.mark.parametrize("kernel", ["auto", "eager", "reference"])
def test_outputs_with_a_lazy_sign_hold_the_result(tokens, dtype, with_k, kernel):
    """`torch.Tensor.imag` of a conjugate: its memory holds the other sign."""
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(tokens))
    q, k = (torch.randn(1, heads, tokens, 16).to(dtype) for heads in (4, 2 + 2 * with_k))
    expected = apply_rotary_qk(q, k if with_k else None, rotation, kernel="reference")
    signed = [torch._neg_view(-x) for x in (q, k)]
    assert signed[0].is_neg() and torch.equal(signed[0], q)
    pair = (signed[0], signed[1] if with_k else None)
    results = apply_rotary_qk(*pair, rotation, kernel=kernel, out=pair)
    assert all(torch.equal(y, x) for y, x in zip(results, expected, strict=True) if x is not None)
