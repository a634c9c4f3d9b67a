"""Few tokens in compiled code for a GPU: the expression without a table has the bits of the reference."""

import torch

from core.conftest import FACTORS, SEQ_LEN, SPECS, anywhere
from phasor import RotarySpec
from phasor.rotary.kernels import ORDERS, Reference, inlined
from phasor.rotary.tables import Phases

FORMATS = {"bhsd": (0, 1, 2, 3), "bshd": (0, 2, 1, 3), "sbhd": (2, 0, 1, 3)}  # from [B, H, S, D]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
EVERY = SPECS | FACTORS


def test_every_spec_has_the_bits_of_the_reference():
    taken = 0
    for number, (name, spec) in enumerate(EVERY.items()):
        if spec.rotary_dim < spec.head_dim or spec.permuted or spec.second or spec.learned:
            continue
        dtype, tensor_format = DTYPES[number % 4], list(FORMATS)[number % 3]
        positions = anywhere(spec, -(2**31), 2**31, 5, *((2,) if number % 2 else ()))
        angles = Phases(spec, positions, SEQ_LEN, dtype=dtype)
        if not angles.of_steps:
            continue
        x = torch.randn(2, 3, 5, spec.head_dim).to(dtype).permute(FORMATS[tensor_format]).requires_grad_()
        got = inlined.rotated(x, angles, ORDERS[tensor_format])
        expected, _ = Reference().rotate(x, None, angles, ORDERS[tensor_format], None)
        assert torch.equal(got, expected) and got.is_contiguous(), (name, dtype, tensor_format)
        up = torch.randn_like(got)
        back = [torch.autograd.grad(y, x, up)[0] for y in (got, expected)]
        assert torch.equal(*back), (name, dtype, tensor_format)
        taken += 1
    assert taken > 50


def test_a_compiler_for_a_cpu_and_eager_mode_do_not_take_it(monkeypatch):
    x, angles = torch.ones(1, 1, 3, 8), Phases(RotarySpec(head_dim=8), torch.arange(3))
    assert not inlined.is_better(x, None, angles)
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not inlined.is_better(x, None, angles)
