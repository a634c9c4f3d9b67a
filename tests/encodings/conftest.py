"""Every encoding with visible (not freshly initialised) parameters, and random q, k, v to put into attention."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from phasor import RotarySpec
from phasor.encodings import ALiBi, Encoding, NoPE, Rotary, Shaw, Sinusoidal, T5Bias, TransformerXL

HEADS, HEAD_DIM = 4, 8

MAKE: dict[str, Callable[[], Encoding]] = {
    "none": NoPE,
    "sinusoidal": lambda: Sinusoidal(HEADS * HEAD_DIM),
    "rotary": lambda: Rotary(RotarySpec(head_dim=HEAD_DIM)),
    "alibi": lambda: ALiBi(HEADS),
    "alibi symmetric": lambda: ALiBi(HEADS, symmetric=True),
    "t5 decoder": lambda: T5Bias(HEADS, bidirectional=False, num_buckets=8, max_distance=16),
    "t5 encoder": lambda: T5Bias(HEADS, bidirectional=True, num_buckets=8, max_distance=16),
    "shaw": lambda: Shaw(HEAD_DIM, max_distance=2),
    "shaw keys only": lambda: Shaw(HEAD_DIM, max_distance=3, max_future=1, with_values=False),
    "transformer-xl": lambda: TransformerXL(HEADS, HEAD_DIM, dim=16),
}


def lively(encoding: Encoding) -> Encoding:
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    return encoding


@pytest.fixture(params=list(MAKE))
def encoding(request: pytest.FixtureRequest) -> Encoding:
    return lively(MAKE[request.param]())


@pytest.fixture
def make_encoding() -> Callable[[str], Encoding]:
    return lambda name: lively(MAKE[name]())


@pytest.fixture
def make_qkv() -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    def make(
        length: int = 7, *, batch: int = 2, kv_heads: int = HEADS, dtype: torch.dtype = torch.float64
    ) -> tuple[Tensor, Tensor, Tensor]:
        shapes = [(batch, heads, length, HEAD_DIM) for heads in (HEADS, kv_heads, kv_heads)]
        q, k, v = (torch.randn(shape, dtype=torch.float64).to(dtype) for shape in shapes)
        return q, k, v

    return make
