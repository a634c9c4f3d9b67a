import math

import mpmath
import pytest
import torch

from phasor.encodings import Sinusoidal, shift_matrix, sinusoids

LAYOUTS = [("interleaved", False), ("sin_cos", False), ("sin_cos", True), ("cos_sin", False)]


def by_hand(t: int, dim: int, layout: str, endpoint: bool, base: int = 10_000) -> list[float]:
    """The definitions of the docstring in 60-digit arithmetic."""
    with mpmath.workdps(60):
        pairs = dim // 2
        exponent = [mpmath.mpf(i) / (pairs - 1) if endpoint else mpmath.mpf(2 * i) / dim for i in range(pairs)]
        angle = [t * mpmath.mpf(base) ** -e for e in exponent]
        sin, cos = [float(mpmath.sin(a)) for a in angle], [float(mpmath.cos(a)) for a in angle]
    if layout == "interleaved":
        return [x for pair in zip(sin, cos, strict=True) for x in pair]
    return sin + cos if layout == "sin_cos" else cos + sin


@pytest.mark.parametrize("layout, endpoint", LAYOUTS)
@pytest.mark.parametrize("t", [0, 1, 511, 131_071, 2**31 - 1, -(2**31)])
def test_equals_the_definition_at_near_and_far_positions(t, layout, endpoint):
    expected = torch.tensor(by_hand(t, 64, layout, endpoint), dtype=torch.float64)
    single = sinusoids(torch.tensor(t), 64, layout=layout, endpoint=endpoint)
    double = sinusoids(torch.tensor(t), 64, layout=layout, endpoint=endpoint, dtype=torch.float64)
    # float32: one rounding of the rest angle and one of the result; phase: |t| 2**-65 turns, 3.7e-10 rad at 2**31
    torch.testing.assert_close(single.double(), expected, rtol=0, atol=2 * torch.finfo(torch.float32).eps)
    phase_error = max(abs(t), 1) * 2.0**-65 * 2 * math.pi
    torch.testing.assert_close(double, expected, rtol=0, atol=phase_error + 4 * torch.finfo(torch.float64).eps)


@pytest.mark.parametrize("layout, endpoint", LAYOUTS)
@pytest.mark.parametrize("k", [1, -7, 1000])
def test_shift_matrix(k, layout, endpoint):
    kinds = {"layout": layout, "endpoint": endpoint}
    t = torch.tensor([0, 1, 50, 2**31])
    shift = shift_matrix(k, 16, **kinds)
    here, there = (sinusoids(p, 16, **kinds, dtype=torch.float64) for p in (t, t + k))
    # beside rounding, phases carry |t| 2**-65 turns: 3.7e-10 rad at 2**31
    torch.testing.assert_close(here @ shift.T, there, rtol=0, atol=2e-9)
    torch.testing.assert_close(shift @ shift.T, torch.eye(16, dtype=torch.float64))
    # the transpose, a sign error printed in tutorials, moves the other way
    assert (here @ shift - there).abs().max() > 0.1


def test_m2m100_and_speech2text():
    m2m = pytest.importorskip("transformers.models.m2m_100.modeling_m2m_100").M2M100SinusoidalPositionalEmbedding
    s2t = pytest.importorskip("transformers.models.speech_to_text.modeling_speech_to_text")
    ours = sinusoids(torch.arange(512), 64, layout="sin_cos", endpoint=True)
    atol = 512 * 2 * torch.finfo(torch.float32).eps  # theirs: float32 frequency and product, up to 512 rad
    torch.testing.assert_close(ours, m2m.get_embedding(512, 64), rtol=0, atol=atol)
    theirs = s2t.Speech2TextSinusoidalPositionalEmbedding.get_embedding(512, 64)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=atol)


def test_whisper_and_xlnet():
    whisper = pytest.importorskip("transformers.models.whisper.modeling_whisper").sinusoids(256, 32)
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet").XLNetModel
    atol = 256 * 2 * torch.finfo(torch.float32).eps
    t = torch.arange(256)
    torch.testing.assert_close(sinusoids(t, 32, layout="sin_cos", endpoint=True), whisper, rtol=0, atol=atol)
    theirs = xlnet.positional_embedding(t.float(), 1 / 10_000 ** (torch.arange(0, 32, 2.0) / 32))[:, 0]
    torch.testing.assert_close(sinusoids(t, 32, layout="sin_cos"), theirs, rtol=0, atol=atol)


def test_embed_adds_in_every_layout_of_positions():
    x, t = torch.randn(2, 3, 8), torch.tensor([[0, 1, 2], [7, 0, 1]])
    encoding = Sinusoidal(8, layout="cos_sin")
    torch.testing.assert_close(encoding.embed(x, t), x + sinusoids(t, 8, layout="cos_sin"))
    assert torch.equal(encoding.embed(x, t)[1:], encoding.embed(x[1:], t[1]))
    assert encoding.embed(x.bfloat16(), t).dtype == torch.bfloat16
