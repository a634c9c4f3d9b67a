"""docs/calls.md: every row of its table, evaluated as it stands there, against the other library's own formula.

The formulas are written down from each library's documentation; nothing of phasor is in them.
"""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

import phasor
from phasor import Rotation, caches, positions, scaling

PAGE = Path(__file__).resolve().parents[2] / "docs" / "calls.md"
ROWS = [
    [cell.strip().strip("`") for cell in line.strip("|").split(" | ")]
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith("| library")
]
NAMES = {name: getattr(place, name) for place in (phasor, caches) for name in place.__all__} | {
    "positions": positions,
    "scaling": scaling,
    "torch": torch,
}
EXPRESSIONS = {row[0].strip("| "): row[2].strip("` |") for row in ROWS}

HEAD, WIDTH, ROWS_OF_TABLE = 16, 12, 40  # WIDTH of the HEAD channels turn where the library allows it


def angles(positions, dim, base=10_000.0):
    """``position * base ** (-2i / dim)``, float64 ``[..., dim / 2]``."""
    exponents = torch.arange(0, dim, 2, dtype=torch.float64) / dim
    return torch.as_tensor(positions, dtype=torch.float64).unsqueeze(-1) * base**-exponents


def tables(dim, base=10_000.0):
    a = angles(torch.arange(ROWS_OF_TABLE), dim, base)
    return a.cos().float(), a.sin().float()


def rotate_half(x):
    a, b = x.chunk(2, -1)
    return torch.cat((-b, a), -1)


def rotate_every_two(x):
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)


def turned(x, cos, sin, interleaved=False):
    """The formula that most libraries share, tables with one column per pair, lined up with ``x``; the rest passes."""
    twice = (lambda t: t.repeat_interleave(2, -1)) if interleaved else (lambda t: torch.cat((t, t), -1))
    cos, sin = twice(cos), twice(sin)
    part, rest = x[..., : cos.shape[-1]], x[..., cos.shape[-1] :]
    return torch.cat((part * cos + (rotate_every_two if interleaved else rotate_half)(part) * sin, rest), -1)


def flash_attn():
    """``rotary_interleaved`` halves or GPT-J pairs of the first channels; tables [seqlen, rotary_dim / 2]."""
    for interleaved in (False, True):
        x, (cos, sin), offset = torch.randn(2, 7, 3, HEAD), tables(WIDTH), 5
        c, s = (t[offset : offset + 7, None] for t in (cos, sin))
        yield locals(), turned(x, c, s, interleaved)


def flash_attn_packed():
    x, (cos, sin) = torch.randn(9, 3, HEAD), tables(WIDTH)
    cu_seqlens, offsets = torch.tensor([0, 3, 3, 9]), torch.tensor([4, 0, 20])
    rows = torch.tensor([4, 5, 6, 20, 21, 22, 23, 24, 25])
    expected = turned(x, cos[rows, None], sin[rows, None])
    table = Rotation.from_tables(cos, sin, form="half", head_dim=HEAD)
    yield locals(), expected


def flash_attn_qkv():
    qkv, (cos, sin) = torch.randn(2, 7, 3, 4, HEAD), tables(WIDTH)
    expected = qkv.clone()
    expected[:, :, :2] = turned(qkv[:, :, :2], cos[:7, None, None], sin[:7, None, None])
    table = Rotation.from_tables(cos, sin, form="half", head_dim=HEAD)
    yield locals(), lambda result: (qkv, expected)


def flash_attn_kv():
    kv, (cos, sin) = torch.randn(2, 7, 2, 4, HEAD), tables(WIDTH)
    expected = kv.clone()
    expected[:, :, 0] = turned(kv[:, :, 0], cos[:7, None], sin[:7, None])
    table = Rotation.from_tables(cos, sin, form="half", head_dim=HEAD)
    yield locals(), lambda result: (kv, expected)


def transformer_engine():
    """``freqs`` [s, 1, 1, d] = cat(angles, angles); t * cos(freqs) + rotate_half(t) * sin(freqs) on its channels."""
    half = angles(torch.arange(7), WIDTH).float()
    freqs = torch.cat((half, half), -1)[:, None, None]
    t = torch.randn(7, 2, 3, HEAD)
    part, rest = t[..., :WIDTH], t[..., WIDTH:]
    yield locals(), torch.cat((part * freqs.cos() + rotate_half(part) * freqs.sin(), rest), -1)


def transformer_engine_packed():
    half = angles(torch.arange(ROWS_OF_TABLE), WIDTH).float()
    freqs = torch.cat((half, half), -1)[:, None, None]
    t, cu_seqlens, starts = torch.randn(5, 3, HEAD), torch.tensor([0, 3, 5]), torch.tensor([8, 0])
    rows = torch.tensor([8, 9, 10, 0, 1])
    yield locals(), turned(t, half[rows, None].cos(), half[rows, None].sin())


def liger():
    """transformers' arguments, q and k written in place."""
    q, k, (cos, sin) = torch.randn(2, 4, 7, HEAD), torch.randn(2, 2, 7, HEAD), tables(HEAD)
    expected = [turned(x, cos[:7], sin[:7]) for x in (q, k)]
    cos, sin = (torch.cat((t[:7], t[:7]), -1).unsqueeze(0) for t in (cos, sin))
    yield locals(), lambda result: (torch.cat((q, k), 1), torch.cat(expected, 1))


def vllm():
    """Flat heads, one position per token, cos_sin_cache [max_position, rot_dim] = cat(cos, sin), in place."""
    for is_neox in (True, False):
        head_size, (cos, sin), ids = HEAD, tables(WIDTH), torch.tensor([3, 4, 30, 0, 39])
        query, key = torch.randn(5, 4 * HEAD), torch.randn(5, 2 * HEAD)
        cos_sin_cache = torch.cat((cos, sin), -1)
        expected = []
        for x in (query, key):
            by_head = x.view(5, -1, HEAD)
            expected.append(turned(by_head, cos[ids, None], sin[ids, None], not is_neox).view(5, -1))
        yield locals(), lambda r, a=(query, key), b=expected: (torch.cat(a, -1), torch.cat(b, -1))


def vllm_cache():
    """[tokens, heads, head_size] into pages [blocks, block_size, heads, head_size]; slots count through all pages."""
    head_size, is_neox, (cos, sin) = HEAD, True, tables(WIDTH)
    query, key, value = torch.randn(5, 4, HEAD), torch.randn(5, 2, HEAD), torch.randn(5, 2, HEAD)
    ids, slots, cos_sin_cache = torch.tensor([4, 0, 9, 9, 1]), torch.tensor([7, 2, 0, 11, 5]), torch.cat((cos, sin), -1)
    key_cache, value_cache = torch.zeros(2, 3, 4, 2, HEAD)
    pages = torch.zeros(2, 12, 2, HEAD)
    pages[0, slots], pages[1, slots] = turned(key, cos[ids, None], sin[ids, None]), value
    expected = torch.cat((turned(query, cos[ids, None], sin[ids, None]).flatten(), pages.flatten()))
    yield locals(), lambda result: (torch.cat((query.flatten(), key_cache.flatten(), value_cache.flatten())), expected)


def vllm_float8():
    """Of numbers that float8 has: heads of two equal halves that turn by no angle, whose mean square is 1."""
    head_size, is_neox, eps, k_scale, v_scale = HEAD, True, 0.0, 0.5, 2.0
    cos_sin_cache, ids = torch.cat((torch.ones(3, HEAD // 2), torch.zeros(3, HEAD // 2)), -1), torch.tensor([1, 2])
    query, key, value = (3 * (torch.randint(0, 2, (2, h, HEAD)) * 2.0 - 1) for h in (4, 2, 2))
    q_weight, k_weight, slots = torch.full((HEAD,), 5.0), torch.full((HEAD,), 7.0), torch.tensor([1, 4])
    key_cache, value_cache = torch.zeros(2, 2, 3, 2, HEAD, dtype=torch.uint8)
    expected = torch.cat((5 * query.sign(), 7 * key.sign() / 0.5, value / 2.0), 1)

    def read(result):
        pages = [c.view(torch.float8_e4m3fn).view(6, 2, HEAD)[slots].float() for c in (key_cache, value_cache)]
        return torch.cat((query, *pages), 1), expected

    yield locals(), read


def vllm_mla():
    """``[kv_c | k_pe]`` of each token in one row; the pairs of DeepSeek are neighbours, and stay so here."""
    eps, weight, (cos, sin) = 1e-6, torch.randn(24), tables(HEAD)
    q_pe, k_pe, kv_c = torch.randn(3, 4, HEAD), torch.randn(3, 1, HEAD), torch.randn(3, 24)
    ids, slots, cos_sin_cache = torch.tensor([4, 0, 9]), torch.tensor([1, 5, 2]), torch.cat((cos, sin), -1)
    kv_cache = torch.zeros(2, 3, 24 + HEAD)
    rows = torch.zeros(6, 24 + HEAD)
    normed = kv_c / (kv_c.square().mean(-1, keepdim=True) + eps).sqrt() * weight
    rows[slots] = torch.cat((normed, turned(k_pe, cos[ids, None], sin[ids, None], True)[:, 0]), -1)
    expected = torch.cat((turned(q_pe, cos[ids, None], sin[ids, None], True).flatten(), rows.flatten()))
    yield locals(), lambda result: (torch.cat((q_pe.flatten(), kv_cache.flatten())), expected)


def flashinfer():
    """vLLM's arguments; new tensors."""
    for given, _ in vllm():
        q, k = given["query"].clone(), given["key"].clone()
        yield (
            given,
            lambda r, b=given["expected"], q=q, k=k, g=given: (
                torch.cat((*r, g["query"], g["key"]), -1),
                torch.cat((*b, q, k), -1),
            ),
        )


def flashinfer_positions():
    """freq_i = 1 / rope_scale * rope_theta ** (-2i / rotary_dim); angle = position * freq_i."""
    for interleave in (False, True):
        q, k, pos_ids = torch.randn(5, 4, HEAD), torch.randn(5, 2, HEAD), torch.tensor([3, 4, 300, 0, 39])
        rotary_dim, rope_scale, rope_theta = WIDTH, 4.0, 5e5
        a = angles(pos_ids / rope_scale, WIDTH, rope_theta)[:, None].float()
        yield locals(), [turned(x, a.cos(), a.sin(), interleave) for x in (q, k)]


def flashinfer_packed():
    q, k, rope_theta = torch.randn(5, 4, HEAD), torch.randn(5, 2, HEAD), 1e4
    indptr, offsets = torch.tensor([0, 2, 5]), torch.tensor([100, 7])
    a = angles(torch.tensor([100, 101, 7, 8, 9]), HEAD)[:, None].float()
    yield locals(), [turned(x, a.cos(), a.sin()) for x in (q, k)]


def xformers():
    """Adjacent pairs; the queries of a sequence are its last tokens: position = key length - query length + i."""
    xq, xk, theta = torch.randn(1, 5, 4, HEAD), torch.randn(1, 5, 2, HEAD), 1e4
    q_seqstart, k_seqlen = torch.tensor([0, 1, 5]), torch.tensor([18, 4])
    a = angles(torch.tensor([17, 0, 1, 2, 3]), HEAD, theta)[:, None].float()
    yield locals(), [turned(x[0], a.cos(), a.sin(), interleaved=True) for x in (xq, xk)]


def transformers():
    """q * cos + rotate_half(q) * sin, cos and sin [batch, seq, head_dim] with a head axis put in."""
    q, k, (cos, sin) = torch.randn(2, 4, 7, HEAD), torch.randn(2, 2, 7, HEAD), tables(HEAD)
    cos, sin = (torch.cat((t[:7], t[:7]), -1).expand(2, -1, -1) for t in (cos, sin))
    yield locals(), [x * cos.unsqueeze(1) + rotate_half(x) * sin.unsqueeze(1) for x in (q, k)]


def gpt_neox():
    """The same on the first channels, which the tables are as wide as."""
    q, k, (cos, sin) = torch.randn(2, 4, 7, HEAD), torch.randn(2, 2, 7, HEAD), tables(HEAD // 2)
    expected = [turned(x, cos[:7], sin[:7]) for x in (q, k)]
    cos, sin = (torch.cat((t[:7], t[:7]), -1).unsqueeze(0) for t in (cos, sin))
    yield locals(), expected


def cohere():
    q, k, (cos, sin) = torch.randn(2, 4, 7, HEAD), torch.randn(2, 2, 7, HEAD), tables(HEAD)
    cos, sin = (t[:7].repeat_interleave(2, -1).unsqueeze(0) for t in (cos, sin))
    yield locals(), [x * cos.unsqueeze(1) + rotate_every_two(x) * sin.unsqueeze(1) for x in (q, k)]


def torchtune():
    """x [b, s, n_h, h_d] seen as pairs (2i, 2i + 1), turned by idx_theta = position * base ** (-2i / dim)."""
    x, dim, base, input_pos = torch.randn(2, 5, 3, HEAD), HEAD, 10_000, torch.tensor([[0, 1, 2, 9, 8], [5, 6, 7, 0, 1]])
    a = angles(input_pos, dim)[:, :, None].float()
    pairs = x.view(2, 5, 3, -1, 2)
    first = pairs[..., 0] * a.cos() - pairs[..., 1] * a.sin()
    second = pairs[..., 1] * a.cos() + pairs[..., 0] * a.sin()
    yield locals(), torch.stack((first, second), -1).flatten(3)


def rotary_embedding_torch():
    """Adjacent pairs of the first channels; (arange + offset) / interpolate_factor * theta ** (-2i / dim)."""
    t, dim, theta, factor, offset = torch.randn(2, 3, 5, HEAD), WIDTH, 5e5, 4.0, 11
    a = angles((torch.arange(5) + offset) / factor, dim, theta).float()
    yield locals(), turned(t, a.cos(), a.sin(), interleaved=True)


def angles_of_pairs():
    """rotary-embedding-torch: angles [s, d], each twice in a row; t * cos(freqs) + rotate_half(t) * sin(freqs)."""
    t, freqs = torch.randn(2, 3, 5, HEAD), angles(torch.arange(5), WIDTH).float().repeat_interleave(2, -1)
    part, rest = t[..., :WIDTH], t[..., WIDTH:]
    yield locals(), torch.cat((part * freqs.cos() + rotate_every_two(part) * freqs.sin(), rest), -1)


def x_transformers():
    """The same, of the last tokens: freqs [1, n, d] with n tokens or more."""
    t, freqs = torch.randn(2, 3, 5, HEAD), angles(torch.arange(9), WIDTH).float().repeat_interleave(2, -1)[None]
    part, rest, f = t[..., :WIDTH], t[..., WIDTH:], freqs[:, None, 4:]
    yield locals(), torch.cat((part * f.cos() + rotate_every_two(part) * f.sin(), rest), -1)


def x_transformers_halves():
    half = angles(torch.arange(9), WIDTH).float()
    t, freqs = torch.randn(2, 3, 5, HEAD), torch.cat((half, half), -1)
    part, rest, f = t[..., :WIDTH], t[..., WIDTH:], freqs[4:]
    yield locals(), torch.cat((part * f.cos() + rotate_half(part) * f.sin(), rest), -1)


def diffusers():
    """use_real_unbind_dim=-1: x [B, H, S, D], cos and sin [S, D] repeated; x * cos + (-x_imag, x_real) * sin."""
    x, (cos, sin) = torch.randn(2, 3, 7, HEAD), (t[:7].repeat_interleave(2, -1) for t in tables(HEAD))
    yield {"x": x, "cos": cos, "sin": sin}, x * cos + rotate_every_two(x) * sin


def diffusers_halves():
    """use_real_unbind_dim=-2 (Stable Audio, OmniGen, CogView4), with sequence_dim=1: x [B, S, H, D]."""
    x, (cos, sin) = torch.randn(2, 7, 3, HEAD), (torch.cat((t[:7], t[:7]), -1) for t in tables(HEAD))
    yield {"x": x, "cos": cos, "sin": sin}, x * cos[:, None] + rotate_half(x) * sin[:, None]


def torchtitan():
    """x [b, s, h, d] as complex numbers of adjacent channels, times freqs_cis [max, d / 2] gathered by positions."""
    a = angles(torch.arange(ROWS_OF_TABLE), HEAD).float()
    xq, xk, freqs_cis = torch.randn(2, 5, 4, HEAD), torch.randn(2, 5, 2, HEAD), torch.polar(torch.ones_like(a), a)
    positions = torch.tensor([[0, 1, 2, 9, 8], [5, 6, 7, 0, 1]])
    f = freqs_cis[positions][:, :, None]
    yield (
        {"xq": xq, "xk": xk, "freqs_cis": freqs_cis, "positions": positions},
        [torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * f).flatten(3) for x in (xq, xk)],
    )


def has(frequencies, width, interleaved):
    """A spec's frequencies beside those expected; first the channels of its pairs, which must be equal."""

    def compare(spec):
        pairs = (
            torch.arange(width).unflatten(0, (-1, 2)) if interleaved else torch.arange(width).unflatten(0, (2, -1)).T
        )
        assert [t.tolist() for t in spec.layout.split(torch.arange(spec.head_dim))] == pairs.T.tolist()
        return spec.inv_freq().float(), frequencies.float()

    return compare


def flash_attn_module():
    """1 / base ** (arange(0, dim, 2) / dim) of the first dim channels."""
    for interleaved in (False, True):
        head_dim, dim, base = HEAD, WIDTH, 5e5
        yield locals(), has(angles(1, dim, base), dim, interleaved)


def torchtune_module():
    yield {"dim": HEAD, "base": 10_000}, has(angles(1, HEAD), HEAD, True)


def torchtune_llama3():
    """By wavelength: above trained / low divided by the factor, below trained / high kept, between blended."""
    dim, base, factor, low, high, trained = 64, 5e5, 8, 1, 4, 8192
    plain = angles(1, dim, base)
    turns = trained * plain / (2 * math.pi)
    keep = ((turns - low) / (high - low)).clamp(0, 1)
    assert ((keep > 0) & (keep < 1)).any()
    yield locals(), has(plain * keep + plain / factor * (1 - keep), dim, True)


def transformer_engine_module():
    """1 / rotary_base ** (arange(0, dim, 2) / dim) of int(dim * rotary_percent) channels; positions / factor."""
    for interleaved in (False, True):
        dim, rotary_percent, factor, base = HEAD, 0.75, 4, 1e4
        yield locals(), has(angles(1, WIDTH, base) / factor, WIDTH, interleaved)


def vllm_module():
    for is_neox_style in (True, False):
        head_size, part, base = HEAD, 0.75, 1e4
        yield locals(), has(angles(1, WIDTH, base), WIDTH, not is_neox_style)


def transformers_module():
    hf = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    config = hf.LlamaConfig(hidden_size=4 * HEAD, num_attention_heads=4, num_hidden_layers=1)
    yield {"config": config}, has(LlamaRotaryEmbedding(config).inv_freq, HEAD, False)


def onnx():
    """Opset 23: [batch, seq, hidden] with num_heads; caches [max, rotary / 2] gathered by position_ids."""
    for interleaved in (0, 1):
        num_heads, rotary_embedding_dim = 3, WIDTH
        X, (cos_cache, sin_cache) = torch.randn(2, 5, num_heads * HEAD), tables(WIDTH)
        position_ids = torch.tensor([[0, 1, 2, 9, 8], [5, 6, 7, 0, 1]])
        c, s = cos_cache[position_ids][:, :, None], sin_cache[position_ids][:, :, None]
        heads = X.view(2, 5, num_heads, HEAD)
        part = heads[..., :WIDTH]
        x1, x2 = (part[..., 0::2], part[..., 1::2]) if interleaved else part.chunk(2, -1)
        real, imag = c * x1 - s * x2, s * x1 + c * x2
        out = torch.stack((real, imag), -1).flatten(-2) if interleaved else torch.cat((real, imag), -1)
        yield locals(), torch.cat((out, heads[..., WIDTH:]), -1).view(2, 5, -1)


def mlx():
    """positions = (offset + arange) * scale; ``traditional`` rotates consecutive dimensions; ``dims`` of them turn."""
    for traditional in (False, True):
        a, dims, base, scale, offset = torch.randn(2, 3, 5, HEAD), WIDTH, 1e4, 0.5, 11
        theta = angles((torch.arange(5) + offset) * scale, dims, base).float()
        yield locals(), turned(a, theta.cos(), theta.sin(), traditional)


def torch_proposed():
    for interleaved in (False, True):
        x, (cos, sin) = torch.randn(2, 3, 5, HEAD), tables(HEAD)
        position_ids = torch.tensor([[0, 1, 2, 9, 8], [5, 6, 7, 0, 1]])
        expected = turned(x, cos[position_ids][:, None], sin[position_ids][:, None], interleaved)
        yield locals(), expected


THEIRS = {
    "flash-attn": flash_attn,
    "flash-attn, packed": flash_attn_packed,
    "flash-attn, in place": flash_attn_qkv,
    "flash-attn, keys and values": flash_attn_kv,
    "TransformerEngine": transformer_engine,
    "TransformerEngine, packed": transformer_engine_packed,
    "Liger": liger,
    "vLLM": vllm,
    "vLLM, into a cache": vllm_cache,
    "vLLM, into a float8 cache after norms": vllm_float8,
    "vLLM, MLA": vllm_mla,
    "FlashInfer": flashinfer,
    "FlashInfer, positions": flashinfer_positions,
    "FlashInfer, packed": flashinfer_packed,
    "xformers": xformers,
    "transformers": transformers,
    "transformers, partial (GPT-NeoX)": gpt_neox,
    "transformers, interleaved (Cohere)": cohere,
    "torchtune": torchtune,
    "rotary-embedding-torch": rotary_embedding_torch,
    "rotary-embedding-torch, angles": angles_of_pairs,
    "x-transformers": x_transformers,
    "x-transformers, halves (stable-audio-tools)": x_transformers_halves,
    "diffusers": diffusers,
    "diffusers, halves": diffusers_halves,
    "torchtitan": torchtitan,
    "ONNX": onnx,
    "MLX": mlx,
    "torch (proposed)": torch_proposed,
    "flash-attn, module": flash_attn_module,
    "torchtune, module": torchtune_module,
    "torchtune, Llama 3.1": torchtune_llama3,
    "TransformerEngine, module": transformer_engine_module,
    "vLLM, module": vllm_module,
    "transformers, module": transformers_module,
}


def test_every_row_has_its_formula():
    assert list(EXPRESSIONS) == list(THEIRS)


@pytest.mark.parametrize("library", THEIRS)
def test_row(library):
    """Within four roundings of their sum of two products: they form it in another order."""
    for given, expected in THEIRS[library]():
        result = eval(EXPRESSIONS[library], NAMES | given)
        got, expected = expected(result) if callable(expected) else (result, expected)
        pairs = zip(got, expected, strict=True) if isinstance(got, tuple) else [(got, expected)]
        for a, b in pairs:
            largest = float(b.abs().max()) * math.sqrt(2)
            torch.testing.assert_close(a, b, rtol=0, atol=4 * torch.finfo(torch.float32).eps * largest)
            assert a.is_contiguous()


def test_the_vectors_of_onnx_itself_are_no_rotation():
    """Their caches are ``np.random.rand(50, 4)``."""
    cos_cache, sin_cache = np.random.default_rng(0).random((2, 50, 4), dtype=np.float32)
    given = {"X": torch.randn(2, 3, 32), "cos_cache": torch.tensor(cos_cache), "sin_cache": torch.tensor(sin_cache)}
    given |= {"position_ids": torch.zeros(2, 3).long(), "interleaved": 0, "num_heads": 4, "rotary_embedding_dim": 8}
    with pytest.raises(ValueError, match=r"cos and sin must have cos \*\* 2 \+ sin \*\* 2 = magnitude \*\* 2"):
        eval(EXPRESSIONS["ONNX"], NAMES | given)
