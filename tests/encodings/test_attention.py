"""Attention: one meaning (`reference`, itself checked against a loop), the same from every kernel."""

import math

import pytest
import torch

from phasor import encodings
from phasor.encodings import ALiBi
from phasor.encodings.attention import KVCache, Mask, attention
from refused import refused

EPS64, EPS32 = torch.finfo(torch.float64).eps, torch.finfo(torch.float32).eps
T = torch.arange(7)
ROWS = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 2, 0, 1]])  # the second: two pads, then two documents
PADDING = torch.tensor([[False] * 7, [True, True, False, False, False, False, False]])
DOCUMENTS = torch.tensor([[0] * 7, [0, 0, 1, 1, 1, 2, 2]])
PADDED = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 0, 0, 1, 2, 3, 4]])
PACKED = torch.tensor([[0, 1, 2, 3, 4, 5, 6], [0, 1, 0, 1, 2, 0, 1]])
# Two drafts of two tokens behind three: 3, 3' at one depth, 4 the child of 3 and 4' of 3'. Who sees whom:
TREE = torch.tensor([0, 1, 2, 3, 3, 4, 4])
PATHS = ([0], [0, 1], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 4], [0, 1, 2, 3, 5], [0, 1, 2, 4, 6])
ANCESTORS = torch.tensor([[j in path for j in range(7)] for path in PATHS])
MASKS = {
    "plain": {"q_positions": T},
    "bidirectional": {"q_positions": T, "causal": False},
    "padded": {"q_positions": PADDED, "key_padding_mask": PADDING},
    "packed": {"q_positions": PACKED, "document_ids": DOCUMENTS},
    "padded and packed, bidirectional": {
        "q_positions": ROWS,
        "causal": False,
        "key_padding_mask": PADDING,
        "document_ids": DOCUMENTS,
    },
    "out of order": {"q_positions": T.flip(0)},
    "a tree": {"q_positions": TREE, "attn_mask": ANCESTORS},
}


def loop(q, k, v, m, n, visible):
    """softmax(q k^T / sqrt(d)) v over the visible keys, one query at a time, in Python floats; no encoding."""
    out = torch.zeros_like(q)
    group = q.shape[1] // k.shape[1]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            for i in range(q.shape[2]):
                seen = [j for j in range(k.shape[2]) if visible(b, i, j)]
                exps = [math.exp(float(q[b, h, i] @ k[b, h // group, j]) / math.sqrt(q.shape[-1])) for j in seen]
                for j, e in zip(seen, exps, strict=True):
                    out[b, h, i] += e / sum(exps) * v[b, h // group, j]
    return out


# Flex is traced anew for each call. Soon it has every mask with one count of heads, and every encoding with two masks
# that have all there is to hide and positions in no order; the rest is slow.
HEADS = [4, 2, 1]
FLEX = {"padded and packed, bidirectional", "out of order"}


def unless(soon, *values):
    return pytest.param(*values, marks=[] if soon or "flex" not in values else pytest.mark.slow)


@pytest.mark.parametrize(
    "case, kv_heads, kernel",
    [
        unless(i % 3 == j, case, kv_heads, kernel)
        for i, case in enumerate(MASKS)
        for j, kv_heads in enumerate(HEADS)
        for kernel in ("reference", "sdpa", "flex")
    ],
)
def test_equals_the_loop(make_qkv, kernel, kv_heads, case):
    q, k, v = make_qkv(kv_heads=kv_heads)
    rules = MASKS[case]
    rows = rules["q_positions"].expand(2, 7)

    def visible(b, i, j):
        before = not rules.get("causal", True) or rows[b, j] <= rows[b, i]
        real = "key_padding_mask" not in rules or not PADDING[b, j]
        together = "document_ids" not in rules or DOCUMENTS[b, i] == DOCUMENTS[b, j]
        return before and real and together and ("attn_mask" not in rules or ANCESTORS[i, j])

    ours = attention(q, k, v, kernel=kernel, **rules)
    torch.testing.assert_close(ours, loop(q, k, v, rows, rows, visible), rtol=0, atol=50 * EPS64)


@pytest.mark.parametrize(
    "case, kernel", [unless(case in FLEX, case, kernel) for case in MASKS for kernel in ("sdpa", "flex")]
)
@torch.no_grad()
def test_kernels_agree_for_every_encoding(encoding, make_qkv, kernel, case):
    q, k, v = make_qkv(kv_heads=2, dtype=torch.float32)
    arguments = {**MASKS[case], "scale": 0.4}
    expected = attention(q, k, v, encoding, kernel="reference", **arguments)
    if (kernel == "flex" and type(encoding).__name__ in ("Shaw", "TransformerXL")) or encoding.needs_weights:
        with pytest.raises(ValueError, match="kernel"):
            attention(q, k, v, encoding, kernel=kernel, **arguments)
    else:
        ours = attention(q, k, v, encoding, kernel=kernel, **arguments)
        # logits reach about 40 (parameters and inputs are unit normal), and their error is the weights' relative error
        torch.testing.assert_close(ours, expected, rtol=0, atol=2 * 40 * EPS32)
    auto = attention(q, k, v, encoding, **arguments)
    torch.testing.assert_close(auto, expected, rtol=0, atol=2 * 40 * EPS32)


@pytest.mark.parametrize("case", MASKS)
def test_gradients_agree_for_every_encoding(encoding, make_qkv, case):
    inputs = [x.requires_grad_() for x in make_qkv(kv_heads=2)]
    parameters = [*inputs, *encoding.parameters()]
    g = torch.randn(2, 4, 7, 8, dtype=torch.float64)

    def gradients(kernel):
        out = attention(*inputs, encoding, scale=0.4, kernel=kernel, **MASKS[case])
        return torch.autograd.grad((out * g).sum(), parameters)

    for ours, expected in zip(gradients("auto"), gradients("reference"), strict=True):
        # parameters are float32, inputs float64
        torch.testing.assert_close(ours, expected)
        assert expected.abs().sum() > 0


@pytest.mark.parametrize("kernel", ["reference", "sdpa", "flex"])
@torch.no_grad()
def test_a_query_without_a_visible_key_gets_zeros(make_qkv, kernel):
    q, k, v = make_qkv()
    out = attention(q, k, v, ALiBi(4), q_positions=T, key_padding_mask=torch.ones(2, 7).bool(), kernel=kernel)
    assert torch.equal(out, torch.zeros_like(q))
    out = attention(q, k, v, q_positions=T, k_positions=T + 3, kernel=kernel)
    assert torch.equal(out[:, :, :3], torch.zeros_like(q[:, :, :3])) and (out[:, :, 3:] != 0).all()


@pytest.mark.parametrize("kernel", ["reference", "sdpa"])
def test_its_gradient_is_zero_and_not_nan(make_qkv, kernel):
    q, k, v = (x.requires_grad_() for x in make_qkv())
    attention(q, k, v, q_positions=T, k_positions=T + 3, kernel=kernel).sum().backward()
    assert (q.grad[:, :, :3] == 0).all() and all(bool(x.grad.isfinite().all()) for x in (q, k, v))


@pytest.mark.parametrize("name", ["none", "alibi"])
def test_no_backend_is_given_a_row_without_a_key(make_encoding, make_qkv, monkeypatch, name):
    """Some backends of sdpa answer such a row with NaN, as the textbook's softmax does; that of a CPU does not."""

    def textbook(q, k, v, attn_mask, scale, enable_gqa):
        logits = scale * q @ k.mT
        hidden = logits.masked_fill(~attn_mask, -torch.inf) if attn_mask.dtype == torch.bool else logits + attn_mask
        return hidden.softmax(-1) @ v

    q, k, v = (x.requires_grad_() for x in make_qkv())
    encoding, arguments = make_encoding(name), {"q_positions": T, "k_positions": T + 3}
    expected = attention(q, k, v, encoding, **arguments)
    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", textbook)
    ours = attention(q, k, v, encoding, **arguments)
    torch.testing.assert_close(ours, expected)
    assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(ours.sum(), (q, k, v)))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_low_precision_rounds_the_wide_result(encoding, make_qkv, dtype):
    q, k, v = make_qkv(dtype=dtype)
    wide = attention(q.double(), k.double(), v.double(), encoding, q_positions=T, scale=0.4, kernel="reference")
    for kernel in ("reference", "auto"):
        ours = attention(q, k, v, encoding, q_positions=T, scale=0.4, kernel=kernel)
        # rotated q and k and the weights are rounded: eps on logits up to 40 and on values up to 4
        assert ours.dtype == dtype and (ours.double() - wide).abs().max() <= 40 * torch.finfo(dtype).eps


def test_a_sequence_does_not_depend_on_its_batch(encoding, make_qkv):
    q, k, v = make_qkv()
    rules = {"q_positions": ROWS, "key_padding_mask": PADDING, "document_ids": DOCUMENTS}
    together = attention(q, k, v, encoding, scale=0.4, **rules)
    for b in range(2):
        one = {name: x[b : b + 1] for name, x in rules.items()}
        alone = attention(q[b : b + 1], k[b : b + 1], v[b : b + 1], encoding, scale=0.4, **one)
        torch.testing.assert_close(together[b : b + 1], alone)


def test_scale_multiplies_scores_but_not_the_bias(make_qkv):
    # with q = 0 the logits are the bias alone: ALiBi's slope 1/4 for the first of four heads (Press et al. 2021)
    q, k, v = make_qkv(2)
    for scale in (None, 10.0):
        out = attention(torch.zeros_like(q), k, v, ALiBi(4), q_positions=torch.arange(2), scale=scale)
        far = math.exp(-0.25)
        expected = (far * v[:, 0, 0] + v[:, 0, 1]) / (1 + far)
        torch.testing.assert_close(out[:, 0, 1], expected)


@pytest.mark.parametrize("kernel", ["reference", "sdpa", pytest.param("flex", marks=pytest.mark.slow)])
@torch.no_grad()
def test_a_tree_gives_each_branch_what_it_has_alone(encoding, make_qkv, kernel):
    if encoding.needs_weights or (kernel == "flex" and type(encoding).__name__ in ("Shaw", "TransformerXL")):
        kernel = "auto"
    q, k, v = make_qkv(dtype=torch.float32)
    rules = {"scale": 0.4, "kernel": kernel}
    as_floats = torch.zeros(1, 1, 7, 7).masked_fill(~ANCESTORS, -torch.inf)
    for mask in (ANCESTORS, as_floats, ANCESTORS.expand(2, 4, 7, 7)):
        tree = attention(q, k, v, encoding, q_positions=TREE, attn_mask=mask, **rules)
        for branch in ([0, 1, 2, 3, 5], [0, 1, 2, 4, 6]):
            alone = attention(*(x[:, :, branch] for x in (q, k, v)), encoding, q_positions=torch.arange(5), **rules)
            torch.testing.assert_close(tree[:, :, branch], alone, rtol=0, atol=2 * 40 * EPS32)


@pytest.mark.parametrize("kernel", ["reference", "sdpa"])
def test_a_mask_of_floats_is_added(make_qkv, kernel):
    # softmax of the mask alone, for a query of zeros: weights 1 to 3 where it says log 3
    _, k, v = make_qkv(2)
    q = torch.zeros_like(v).requires_grad_()
    added = torch.tensor([[0.0, math.log(3.0)], [-torch.inf, -torch.inf]], dtype=torch.float64, requires_grad=True)
    out = attention(q, k, v, q_positions=torch.arange(2), causal=False, attn_mask=added, kernel=kernel)
    torch.testing.assert_close(out[:, :, 0], (v[:, :, 0] + 3 * v[:, :, 1]) / 4)
    assert not out[:, :, 1].any()  # it may see nothing
    (gradient,) = torch.autograd.grad(out.square().sum(), added)
    assert gradient.isfinite().all() and gradient[0].all() and not gradient[1].any()


def test_positions_that_repeat_are_refused_where_they_would_have_to_tell_the_order(make_qkv):
    q, k, v = make_qkv()
    message = r"k_positions must not repeat within a row where causal=True, got 3 twice.* attn_mask .* document_ids"
    with pytest.raises(ValueError, match=message):
        attention(q, k, v, q_positions=TREE)
    cache = KVCache()
    attention(*(x[:, :, :4] for x in (q, k, v)), q_positions=TREE[:4], cache=cache)
    with pytest.raises(ValueError, match=message):
        attention(*(x[:, :, 4:] for x in (q, k, v)), q_positions=TREE[4:], cache=cache)
    assert len(cache) == 4
    with pytest.raises(ValueError, match="got 0 twice"):  # packed documents without their ids
        attention(q, k, v, q_positions=torch.tensor([0, 1, 2, 0, 1, 2, 3]))
    with pytest.raises(ValueError, match="got 0 twice"):  # one of the two is padding, but there are three
        attention(q, k, v, q_positions=ROWS, key_padding_mask=torch.tensor([[False] * 7, [True] + [False] * 6]))
    for rules in (
        {"causal": False},
        {"attn_mask": ANCESTORS},
        {"document_ids": torch.tensor([0, 0, 0, 0, 1, 0, 1])},
        {"key_padding_mask": torch.tensor([[False] * 4 + [True, False, True]]).expand(2, 7)},
    ):
        attention(q, k, v, q_positions=TREE, **rules)


def test_is_lower_triangle_only_where_it_is():
    rows = T.expand(2, 7)
    assert Mask(True, T[None], T[None]).is_lower_triangle() and Mask(True, rows, rows).is_lower_triangle()
    assert not Mask(False, T[None], T[None]).is_lower_triangle()
    assert not Mask(True, T.flip(0)[None], T.flip(0)[None]).is_lower_triangle()
    assert not Mask(True, ROWS, ROWS).is_lower_triangle()  # equal positions see each other
    assert not Mask(True, T[None, 3:], T[None]).is_lower_triangle()
    assert not Mask(True, rows, rows, PADDING).is_lower_triangle()
    assert not Mask(True, rows, rows, None, DOCUMENTS, DOCUMENTS).is_lower_triangle()


@pytest.mark.parametrize(
    "name",
    ["rotary", "transformer-xl", *(pytest.param(n, marks=pytest.mark.slow) for n in ("alibi", "t5 decoder", "shaw"))],
)
def test_traces_as_one_graph(make_encoding, make_qkv, name):
    encoding, (q, k, v) = make_encoding(name), make_qkv(dtype=torch.float32)

    def layer(q, k, v, t):
        return attention(q, k, v, encoding, q_positions=t, scale=0.4)

    compiled = torch.compile(layer, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(q, k, v, T), layer(q, k, v, T))


def called(**changes):
    """Of a batch of 2 with 4 heads and 7 tokens."""
    q, k, v = torch.zeros(3, 2, 4, 7, 8)
    return attention(**{"q": q, "k": k, "v": v, "q_positions": T, **changes})


MISTAKES = """
q=torch.zeros(2, 4, 8) => q must be [B, H, Q, head_dim] … got (2, 4, 8)
q=torch.zeros(1, 4, 7, 8) => q and k must agree in batch and head_dim
q=torch.zeros(2, 6, 7, 8) => q's heads must be a multiple of k's, got 6 and 4; if the tensors are
v=torch.zeros(2, 4, 7, 8, dtype=torch.float64) => q, k and v must have one dtype
q_positions=T.float() => q_positions must be int64, got torch.float32; convert
q_positions=T[:4] => q_positions must be [S] or [B, S] with S = 7 and B = 2, got [4]; … bshd
k_positions=T.expand(3, 7) => k_positions must be … got [3, 7]
document_ids=T[:3] => document_ids of q must be … got [3]
document_ids=(T, T[:3]) => document_ids of k must be … got [3]
key_padding_mask=torch.ones(2, 7) => key_padding_mask must be bool … True where … padding … attention_mask == 0
attn_mask=torch.ones(7, 6).bool() => attn_mask must be bool … broadcastable to … = [2, 4, 7, 7] … [7, 6]
attn_mask=torch.ones(7, 7).long() => attn_mask must be bool … got torch.int64
key_padding_mask=torch.ones(7).bool() => key_padding_mask must be bool [B, K] = [2, 7]
kernel='flash' => kernel must be 'auto', 'sdpa', 'flex' or 'reference', got 'flash'
encoding=T5Bias(4, bidirectional=False) => scale must be given with T5Bias
encoding=ALiBi(2) => q must have the 2 heads that ALiBi was made for, got 4
encoding=TransformerXL(4, 8, 8), kernel='flex' => has no backward on a CPU
"""
test_errors = refused(MISTAKES, globals(), "called({})", of=(encodings,))


def test_kernels_refuse_what_they_cannot_compute(make_encoding, make_qkv):
    q, k, v = make_qkv(dtype=torch.float32)
    with pytest.raises(ValueError, match="kernel='sdpa' never forms the softmax weights that Shaw needs"):
        attention(q, k, v, make_encoding("shaw"), q_positions=T, kernel="sdpa")
    with pytest.raises(ValueError, match=r"kernel='flex' has no backward on a CPU .* use kernel='sdpa'"):
        attention(q.requires_grad_(), k, v, q_positions=T, kernel="flex")
    with torch.no_grad():
        for name, way_out in (("shaw keys only", "Shaw"), ("transformer-xl", "TransformerXL")):
            with pytest.raises(ValueError, match=f"kernel='flex' cannot compute {way_out}: .* use kernel="):
                attention(q, k, v, make_encoding(name), q_positions=T, kernel="flex")
