"""out= and in place: what is written, and what is refused."""

import copy
import dataclasses

import pytest
import torch

from phasor import RotarySpec, Rotation, apply_rotary, apply_rotary_qk, apply_rotary_qkv, rotate
from refused import refused

from .conftest import assert_refused

SPEC = RotarySpec(head_dim=16, rotary_dim=12)
ROTATION = Rotation.at(SPEC, torch.arange(7) + 100)


def test_promoted_results_need_a_wide_output():
    spec = SPEC.replace(angles="float32", tables="promoted")
    rotation = Rotation.at(spec, torch.arange(7), dtype=torch.bfloat16)
    x = torch.randn(3, 7, 16).bfloat16()
    expected = apply_rotary(x, rotation)
    assert torch.equal(apply_rotary(x, rotation, out=torch.empty_like(expected)), expected)
    out = torch.empty_like(expected)
    assert torch.equal(rotate(x, None, torch.arange(7), spec, out=(out, None))[0], expected)
    assert_refused(lambda: apply_rotary(x, rotation, out=x), ["out must be torch.float32 (3, 7, 16)", "bfloat16"])


def with_gradient(name):
    """A rotation by learned frequencies, of which one table is asked for its gradient."""
    return dataclasses.replace(ROTATION, **{name: getattr(ROTATION, name).clone().requires_grad_()})


X, K = torch.zeros(2, 3, 7, 16), torch.zeros(2, 1, 7, 16)
MEMORY = torch.zeros(4000)
ROW = MEMORY[:672].view(2, 3, 7, 16)
REFUSED = """
apply_rotary(X, ROTATION, out=K) => out must be torch.float32 (2, 3, 7, 16) … (2, 1, 7, 16)
apply_rotary(X, ROTATION, out=X.half()) => out must be torch.float32 … torch.float16
apply_rotary(X, ROTATION, out=X.to('meta')) => out must be … on cpu … on meta
apply_rotary_qk(X, X.clone(), ROTATION, out=((K := torch.zeros_like(X)), K)) => not overlap
apply_rotary_qk((a := X.clone()), (b := X.clone()), ROTATION, out=(b, a)) => out must not overlap another input
apply_rotary(X, ROTATION, out=X.clone().requires_grad_()) => out cannot be written where a gradient is needed
apply_rotary_qk(X, K, ROTATION, out=X) => out must be a tensor, or a pair … (2, 3, 7, 16)
apply_rotary_qk(X, None, ROTATION, out=(X, K)) => out must be a tensor, or a pair
apply_rotary(X, ROTATION, out=torch.zeros(3, 7, 16).expand(2, 3, 7, 16)) => out must not overlap itself, got strides (0,
    112, 16, 1)
apply_rotary(X, ROTATION, out=torch.zeros(2, 3, 22).unfold(-1, 16, 1)) => out must not overlap itself
apply_rotary(ROW, ROTATION, out=MEMORY[1:673].view(2, 3, 7, 16)) => out must not overlap another input or output in part
apply_rotary(ROW, ROTATION, out=MEMORY[:672].view(2, 7, 3, 16).transpose(1, 2)) => out must not overlap
apply_rotary(X.clone().requires_grad_(), ROTATION, out=X.clone()) => out cannot be written where a gradient is needed …
    torch.no_grad()
apply_rotary(X, with_gradient('cos'), out=X.clone()) => out cannot be written where a gradient is needed
apply_rotary(X, with_gradient('sin'), out=X.clone()) => out cannot be written where a gradient is needed
"""
test_refused = refused(REFUSED, globals())


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


def test_a_result_must_not_lie_in_the_positions_that_turn_it():
    """Later tiles of tokens would be turned by results of earlier ones."""
    numbers = torch.arange(40 * 8)
    out = numbers.view(torch.float32).view(1, 40, 16), None
    with pytest.raises(ValueError, match="out must not overlap the rotation or its positions"):
        rotate(torch.ones(1, 40, 16), None, numbers[:40], SPEC, out=out)


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


@pytest.mark.parametrize("out", [torch.zeros(1, 7, 3, 2, 15), torch.zeros(7, 3, 2, 16), "out"])
def test_a_packed_projection_refuses_an_output_of_another_shape(out):
    assert_refused(
        lambda: apply_rotary_qkv(torch.randn(1, 7, 3, 2, 16), ROTATION, out=out), ["out must have the shape of qkv, "]
    )


@pytest.mark.parametrize("heads", [0, -1, 1.0, True])
def test_a_packed_projection_needs_a_number_of_heads(heads):
    assert_refused(lambda: apply_rotary_qkv(torch.randn(1, 7, 6, 16), ROTATION, num_heads=heads), ["num_heads must be"])
