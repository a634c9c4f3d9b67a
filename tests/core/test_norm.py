"""RMSNorm of q and k with the rotation: what it means, that it is what models do, and what it refuses.

Every order of axes is the plain one on rearranged tensors: `test_meaning`.
"""

import pytest
import torch

from phasor import Layout, RotarySpec, Rotation, apply_qk_norm_rotary, apply_rotary
from refused import refused

F64 = torch.float64
LAYOUTS = {
    "halves": {},
    "interleaved": {"interleaved": True},
    "partial": {"rotary_dim": 8},
    "trailing": {"rotary_dim": 8, "trailing": True, "interleaved": True},
    "blocks": {"blocks": 2},
    "permuted": {"interleaved": True, "permuted": True},
}
ROUNDINGS = ("once", "between", "before_weight")


@pytest.fixture(params=LAYOUTS)
def spec(request):
    return RotarySpec(head_dim=16, **LAYOUTS[request.param])


def given(heads=3, dtype=torch.float32):
    return torch.randn(2, heads, 5, 16, dtype=F64).to(dtype)


def by_hand(x, weight, eps, unit_offset=False, axes=(-1,)):
    """The formula, in float64."""
    x, w = x.double(), weight.double() + unit_offset
    return x / (x.square().mean(axes, keepdim=True) + eps).sqrt() * w


@pytest.mark.parametrize("after", [False, True])
def test_it_is_the_formula(spec, after):
    rotation = Rotation.at(spec, torch.arange(5), dtype=F64)
    q, k, weights = given(dtype=F64), given(heads=2, dtype=F64), torch.randn(2, 16, dtype=F64)
    got = apply_qk_norm_rotary(q, k, rotation, *weights, eps=0.3, unit_offset=True, after=after)
    for x, w, y in zip((q, k), weights, got, strict=True):
        if after:
            expected = by_hand(apply_rotary(x, rotation), w, 0.3, True)
        else:
            expected = apply_rotary(by_hand(x, w, 0.3, True), rotation)
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-14)
        assert y.is_contiguous()


def test_one_mean_over_all_heads_of_a_token():
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(5), dtype=F64)
    q, k = given(heads=4, dtype=F64), given(heads=2, dtype=F64)
    of_q, of_k = torch.randn(64, dtype=F64), torch.randn(32, dtype=F64)
    got = apply_qk_norm_rotary(q, k, rotation, of_q, of_k, across_heads=True)
    for x, w, y in zip((q, k), (of_q, of_k), got, strict=True):
        expected = apply_rotary(by_hand(x, w.view(-1, 1, 16), 1e-6, axes=(-3, -1)), rotation)
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("rounding", ROUNDINGS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_rounded_where_it_says(dtype, rounding):
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(5))
    q, weight = given(dtype=dtype), torch.randn(16).to(dtype)
    got = apply_qk_norm_rotary(q, None, rotation, weight, None, rounding=rounding, kernel="reference")[0]
    wide = q.float()
    n = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)
    if rounding == "before_weight":
        n = weight * n.to(dtype)
    elif rounding == "between":
        n = (weight.float() * n).to(dtype)
    else:
        n = weight.float() * n
    expected = apply_rotary(n, rotation, kernel="reference").to(dtype)
    assert got.dtype == dtype and torch.equal(got, expected)


# The modules of transformers: class, settings that repeat it, whether it is given eps as `eps=`.
THEIRS = {
    "qwen3.Qwen3RMSNorm": {"rounding": "before_weight"},
    "gemma3.Gemma3RMSNorm": {"rounding": "between", "unit_offset": True},
    "gemma4.Gemma4RMSNorm": {"rounding": "between"},
    "olmo2.Olmo2RMSNorm": {"rounding": "between"},
    "hunyuan_v1_dense.HunYuanDenseV1RMSNorm": {"rounding": "before_weight", "after": True},
}


def theirs(name, width, dtype, eps):
    transformers = pytest.importorskip("transformers")
    family, cls = name.split(".")
    module = transformers.utils.import_utils.importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    norm = getattr(module, cls)(width, eps=eps)
    with torch.no_grad():
        norm.weight.copy_(torch.randn(width))
    return norm.to(dtype), module


@pytest.mark.parametrize("width", [64, 80, 128, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", THEIRS)
def test_the_bits_of_their_modules(name, dtype, width):
    """In plain PyTorch the operations are theirs, one for one, and so are the bits, wherever they are computed."""
    settings = THEIRS[name]
    norm, _ = theirs(name, width, dtype, 1e-5)
    from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

    q, k = (torch.randn(2, h, 19, width).to(dtype) for h in (3, 2))
    angles = torch.randn(2, 19, width // 2)
    half = [t.to(dtype) for t in (angles.cos(), angles.sin())]
    cos, sin = (torch.cat((t, t), -1) for t in half)
    if settings.get("after"):
        expected = tuple(norm(x) for x in apply_rotary_pos_emb(q, k, cos, sin))
    else:
        expected = apply_rotary_pos_emb(norm(q), norm(k), cos, sin)
    rotation = Rotation(cos=half[0], sin=half[1], layout=Layout(head_dim=width))
    got = apply_qk_norm_rotary(
        q, k, rotation, norm.weight.detach(), norm.weight.detach(), eps=1e-5, kernel="reference", **settings
    )
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_bits_of_olmo2_whose_norm_comes_before_its_heads(dtype):
    norm, module = theirs("olmo2.Olmo2RMSNorm", 4 * 32, dtype, 1e-6)
    flat = torch.randn(2, 19, 4 * 32).to(dtype)
    angles = torch.randn(2, 19, 16)
    cos, sin = (torch.cat((t, t), -1) for t in (angles.cos(), angles.sin()))
    q = norm(flat).view(2, 19, 4, 32).transpose(1, 2)
    expected, _ = module.apply_rotary_pos_emb(q, q, cos, sin)
    q = flat.view(2, 19, 4, 32).transpose(1, 2)
    rotation = Rotation.from_tables(cos, sin, form="doubled")
    got, _ = apply_qk_norm_rotary(
        q, None, rotation, norm.weight.detach(), None, across_heads=True, rounding="between", kernel="reference"
    )
    assert torch.equal(got, expected)


@pytest.mark.parametrize("layout", [{}, {"rotary_dim": 2, "trailing": True}], ids=["whole", "partial"])
@pytest.mark.parametrize("settings", [{"unit_offset": True}, {"after": True}, {"across_heads": True}], ids=str)
def test_gradcheck(settings, layout):
    rotation = Rotation.at(RotarySpec(head_dim=4, **layout), torch.arange(2), dtype=F64)
    q, k = torch.randn(2, 2, 2, 4, dtype=F64).requires_grad_().unbind()
    of_q, of_k = torch.randn(2, 8 if settings.get("across_heads") else 4, dtype=F64).requires_grad_().unbind()

    def both(*given):
        return apply_qk_norm_rotary(given[0], given[1], rotation, *given[2:], **settings)

    assert torch.autograd.gradcheck(both, (q, k, of_q, of_k), check_forward_ad=True)


def test_a_promoted_rotation_gives_the_dtype_of_its_tables():
    rotation = Rotation.at(RotarySpec(head_dim=16), torch.arange(5)).replace(promoted=True)
    q, weight = given(dtype=torch.bfloat16), torch.randn(16)
    for rounding in ROUNDINGS:
        assert apply_qk_norm_rotary(q, None, rotation, weight, None, rounding=rounding)[0].dtype == torch.float32
    unpromoted = apply_qk_norm_rotary(q.float(), None, rotation, weight, None)[0]
    assert torch.equal(apply_qk_norm_rotary(q, None, rotation, weight, None)[0], unpromoted)


ROTATION = Rotation.at(RotarySpec(head_dim=16), torch.arange(5))
Q, W = torch.randn(2, 3, 5, 16), torch.ones(16)


def normed(**changes):
    return apply_qk_norm_rotary(
        **{"q": Q, "k": Q.clone(), "rotation": ROTATION, "q_weight": W, "k_weight": W} | changes
    )


MISTAKES = """
q_weight=torch.ones(8) => q_weight must be a tensor [16] of floats … of a head, got torch.float32 (8,)
k_weight=torch.ones(16).long() => k_weight must be a tensor [16] of floats … got torch.int64
k_weight=[1.0] * 16 => k_weight must be a tensor [16] of floats … got list
across_heads=True => q_weight must be a tensor [48] … of 3 heads of 16 channels, got torch.float32 (16,)
k_weight=None => q_weight and k_weight must both be tensors or both be None, got one of each
q_weight=W.to('meta') => q_weight and what it multiplies must be on the same device, got meta, cpu
eps=-1.0 => eps must be a finite number of at least 0, got -1.0
eps='1e-6' => eps must be a finite number of at least 0, got '1e-6'
unit_offset=1 => unit_offset must be True or False, got 1
after=None => after must be True or False, got None
rounding='twice' => rounding must be 'once', 'between' or 'before_weight', got 'twice'
rotation=RotarySpec(head_dim=16) => rotation must be a Rotation, got RotarySpec
q=Q.long() => q must be float64, float32, float16 or bfloat16, got torch.int64
k=Q.double() => q and k must have the same dtype
k=Q[..., :8] => k must have the 16 channels of the rotation's head_dim, got 8
tensor_format='bshd' => q has 3 tokens in tensor_format='bshd' but the rotation has 5 positions
kernel='fastest' => kernel must be 'auto' or one of
q_weight=torch.ones(16, requires_grad=True), out=(Q, Q.clone()) => where a gradient is needed
"""
test_mistakes = refused(MISTAKES, globals(), "normed({})")
