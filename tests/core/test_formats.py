"""Orders of axes and calls: each is the plain call on rearranged tensors, to the bit, and its result is contiguous."""

import pytest
import torch

import phasor
from phasor import Rotary, RotarySpec, Rotation, apply_rotary, apply_rotary_qk, rotate
from refused import refused

SPEC = RotarySpec(head_dim=16, rotary_dim=12, interleaved=True)
ROTATION = Rotation.at(SPEC, torch.arange(7))


def test_keys_at_positions_of_their_own_keep_the_arithmetic_of_their_dtype():
    q, k, at = torch.randn(1, 2, 1, 8, dtype=torch.float64), torch.randn(1, 2, 3, 8), torch.tensor([5, 77_777, 123_456])
    found = rotate(q, k, at[:1], RotarySpec(head_dim=8), k_positions=at, kernel="reference")[1]
    assert torch.equal(found, rotate(k, None, at, RotarySpec(head_dim=8), kernel="reference")[0])


def test_the_module_has_nothing_to_damage():
    rotary = Rotary(RotarySpec(head_dim=16))
    assert not list(rotary.parameters())
    assert not list(rotary.buffers())
    assert rotary.state_dict() == {}
    q = torch.randn(1, 2, 5, 16)
    before = rotary(q, q, torch.arange(5) + 100_000)[0]
    moved = torch.nn.Sequential(rotary).to(torch.bfloat16).to("meta").to_empty(device="cpu")[0]
    assert torch.equal(moved(q, q, torch.arange(5) + 100_000)[0], before)
    with torch.device("meta"):
        made = Rotary(RotarySpec(head_dim=16))
    assert torch.equal(made(q, q, torch.arange(5) + 100_000)[0], before)
    flat, about = q.transpose(1, 2).flatten(-2), {"tensor_format": "bshd", "num_heads": 2}
    assert torch.equal(made(flat, flat, torch.arange(5) + 100_000, **about)[1], before.transpose(1, 2).flatten(-2))


X = torch.zeros(2, 7, 64)
REFUSED = """
apply_rotary(X, ROTATION, num_heads=4) => tensor_format must be 'bshd', 'sbhd' or 'thd' with num_heads … got 'bhsd'
apply_rotary(X, ROTATION, num_heads=3, tensor_format='bshd') => x must have num_heads=3 times head_dim=16 channels, got
    64
apply_rotary_qk(X, X[..., :40], ROTATION, num_heads=4, tensor_format='bshd') => k must have a multiple of head_dim=16
    channels, got 40
apply_rotary(X, ROTATION, tensor_format='thd') => x must have the 16 channels of the rotation's head_dim, got 64 … flat
    heads: num_heads=4
apply_rotary(torch.zeros(2, 7, 4, 16), ROTATION, tensor_format='thd') => x must be [tokens, heads, head_dim] for
    tensor_format='thd', got shape (2, 7, 4, 16)
apply_rotary(torch.zeros(7, 3, 4, 16), Rotation.at(SPEC, torch.zeros(2, 7).long()), tensor_format='sbhd') => the
    rotation's batch (2,) must fit the batch (3,) of x
apply_rotary(X, SPEC) => rotation must be a Rotation, got RotarySpec … Rotation.at(spec, 
apply_rotary_qk(X, X, ROTATION, k_rotation=SPEC) => k_rotation must be a Rotation
apply_rotary(X.to_sparse(), ROTATION) => x must be a dense tensor, got a torch.sparse_coo one
apply_rotary(torch.nested.nested_tensor([X[0], X[1]], layout=torch.jagged), ROTATION) => x must be a dense tensor, got a
    nested (pack its documents, tensor_format='thd') one
apply_rotary_qkv(X, ROTATION) => qkv must be [..., seq, 3, heads, head_dim] … (2, 7, 64)
apply_rotary_qkv(torch.zeros(7, 7, 16), ROTATION, num_heads=4) => qkv must have num_heads=4 heads of q and as many of k
    as of v, got shape (7, 7, 16)
apply_rotary_qkv(torch.zeros(7, 3, 4, 16), ROTATION, out=torch.zeros(7, 4, 3, 16).transpose(1, 2)) => out must have q, k
    and v next to each other in memory
Rotary(64) => spec must be a RotarySpec, got int
phasor.positions.packed(torch.tensor([0, 3]), torch.tensor([1, 2])) => offsets must have one value for each of 1
    documents, got 2
phasor.positions.packed(torch.tensor([0, 3]).to(torch.uint64)) => cu_seqlens must hold integers of at most 63
    bits, got torch.uint64
"""
test_refused = refused(REFUSED, globals(), of=(phasor,))


@pytest.mark.parametrize("turn", [apply_rotary, lambda x, r: apply_rotary_qk(x.detach(), x, r)])
def test_tables_of_inference_mode_are_refused_where_a_gradient_is_needed(turn):
    with torch.inference_mode():
        rotation = Rotation.at(SPEC, torch.arange(7))
    x = torch.randn(2, 3, 7, 16, requires_grad=True)
    with pytest.raises(ValueError, match=r"the rotation was made in torch.inference_mode\(\)"):
        turn(x, rotation)
    with torch.no_grad():
        turn(x, rotation)
