"""Compiled code and numbers that are no constants to it: sizes, strides, lengths, eps."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from phasor import RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary, apply_rotary_qkv, rotate
from phasor.caches import apply_rotary_to_cache, cache_slots

SPEC = RotarySpec(head_dim=16)
ROTATION = Rotation.at(SPEC, torch.arange(5))


def compiled(call):
    torch.compiler.reset()
    return torch.compile(call, fullgraph=True, dynamic=True, backend="eager")


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
def test_tokens_of_which_only_the_data_tell_how_many(dtype):
    def turn(x, mask):
        chosen = mask.nonzero()[:, 0]
        return apply_rotary(x[chosen], Rotation.at(SPEC, chosen), tensor_format="thd")

    x, mask = torch.randn(40, 2, 16).to(dtype), torch.arange(40) % 3 > 0
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert torch.equal(compiled(turn)(x, mask), turn(x, mask))


def test_a_length_that_changes_and_on_which_nothing_depends():
    call = compiled(lambda q, positions, seq_len: rotate(q, None, positions, SPEC, seq_len=seq_len)[0])
    for seq_len in (5, 6, 9):
        q, positions = torch.randn(1, 2, seq_len, 16), torch.arange(seq_len)
        assert torch.equal(call(q, positions, seq_len), rotate(q, None, positions, SPEC)[0])


def test_an_output_of_other_strides():
    call = compiled(lambda x, rotation, out: apply_rotary(x, rotation, tensor_format="thd", out=out))
    for tokens in (5, 7):
        x, rotation = torch.randn(tokens, 2, 16), Rotation.at(SPEC, torch.arange(tokens))
        out = torch.empty(2, tokens, 16).transpose(0, 1)
        call(x, rotation, out)
        assert torch.equal(out, apply_rotary(x, rotation, tensor_format="thd"))


def test_norms_with_an_eps_of_their_own():
    call = compiled(lambda q, weight, eps: apply_qk_norm_rotary(q, None, ROTATION, weight, None, eps=eps)[0])
    q, weight = torch.randn(1, 2, 5, 16), torch.randn(16)
    for eps in (1e-6, 0.5):
        expected, _ = apply_qk_norm_rotary(q, None, ROTATION, weight, None, eps=eps, kernel="reference")
        assert torch.equal(call(q, weight, eps), expected)


def test_a_packed_projection_in_place():
    qkv = torch.randn(1, 5, 3, 2, 16)
    expected = apply_rotary_qkv(qkv, ROTATION)
    compiled(lambda x: apply_rotary_qkv(x, ROTATION, out=x))(qkv)
    assert torch.equal(qkv, expected)


@pytest.mark.parametrize("strict", [True, False])
def test_a_program_exported_for_a_gpu_has_any_length(strict):
    class Model(torch.nn.Module):
        def forward(self, q, positions):
            return rotate(q, None, positions, SPEC)[0]

    with FakeTensorMode():
        q, positions = torch.empty(1, 2, 8, 16, device="cuda"), torch.empty(8, dtype=torch.int64, device="cuda")
    seq = torch.export.Dim("seq", min=2, max=2**20)
    program = torch.export.export(Model(), (q, positions), dynamic_shapes=({2: seq}, {0: seq}), strict=strict)
    assert [str(bounds) for bounds in program.range_constraints.values()] == ["VR[2, 1048576]"]


def test_an_exported_write_into_a_cache_takes_any_number_of_tokens():
    class Model(torch.nn.Module):
        def forward(self, x, positions, k_cache, v_cache):
            rotation, slots = Rotation.at(SPEC, positions), cache_slots(positions[None], 64)
            return apply_rotary_to_cache(x, x, x, rotation, k_cache, v_cache, slots)

    def given(tokens):
        return torch.randn(1, 2, tokens, 16), torch.arange(tokens), torch.zeros(1, 64, 2, 16), torch.zeros(1, 64, 2, 16)

    seq = torch.export.Dim("seq", min=2, max=64)
    program = torch.export.export(Model(), given(8), dynamic_shapes=({2: seq}, {0: seq}, None, None), strict=False)
    x, positions, *caches = given(40)
    others = [cache.clone() for cache in caches]
    assert torch.equal(program.module()(x, positions, *caches), Model()(x, positions, *others))
    assert torch.equal(torch.stack(caches), torch.stack(others))
