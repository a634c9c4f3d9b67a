"""Encodings that depend on content: what the files of float64 numbers do not say."""

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from phasor import RotarySpec, encodings
from phasor.encodings import (
    DAPE,
    FIRE,
    TUPE,
    ALiBi,
    CoPE,
    DAPEv2,
    DeBERTa,
    FoX,
    NoPE,
    PaTH,
    PaTHFoX,
    Rotary,
    StickBreaking,
    Tempered,
    Tokens,
    WindowedRotary,
    interleaved_nope,
)
from phasor.encodings.attention import KVCache, attention, kernels
from phasor.temperature import LogFloor
from refused import refused

HEADS, HEAD_DIM, DIM = 4, 8, 16
MAKE = {
    "cope": lambda: CoPE(HEAD_DIM, 6),
    "dape": lambda: DAPE(ALiBi(HEADS), HEADS),
    "dape v2": lambda: DAPEv2(ALiBi(HEADS), HEADS),
    "deberta": lambda: DeBERTa(HEADS, HEAD_DIM, DIM, span=4),
    "fox": lambda: FoX(HEADS, DIM),
    "path": lambda: PaTH(HEADS, HEAD_DIM, DIM, kv_heads=2),
    "path fox": lambda: PaTHFoX(HEADS, HEAD_DIM, DIM, kv_heads=2),
    "stick-breaking": StickBreaking,
    "windowed": lambda: WindowedRotary(RotarySpec(head_dim=HEAD_DIM), window=20),
    "tempered": lambda: Tempered(HEADS, scheme=LogFloor(beta=0.5, length=3)),
}


class Shapes(TorchDispatchMode):
    """The shapes of all that is formed."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        self.seen |= {tuple(x.shape) for x in tree_leaves(out) if isinstance(x, torch.Tensor)}
        return out


def tokens(length, batch=2, dtype=torch.float64):
    shapes = [(batch, heads, length, HEAD_DIM) for heads in (HEADS, 2, 2)] + [(batch, length, DIM)]
    return [torch.randn(shape, dtype=dtype) for shape in shapes]


def make(name, dtype=torch.float64):
    encoding = MAKE[name]().to(dtype)
    with torch.no_grad():
        for parameter in encoding.parameters():
            parameter.normal_()
    return encoding


@pytest.mark.parametrize("name", MAKE)
def test_rows_at_a_time_give_the_same_output_and_gradients(name, monkeypatch):
    encoding, (*qkv, hidden) = make(name), tokens(70)
    inputs = [x.requires_grad_() for x in (*qkv, hidden)]
    learned = [*inputs[:3], *encoding.parameters()]

    def run():
        out = attention(*inputs[:3], encoding, q_positions=torch.arange(70), hidden=inputs[3])
        return out, torch.autograd.grad(out.square().sum(), learned)

    whole, gradients = run()
    monkeypatch.setattr(kernels, "AT_ONCE", 1)
    monkeypatch.setattr(kernels, "FEWEST", 16)
    parts, of_parts = run()
    torch.testing.assert_close(parts, whole)
    with torch.no_grad(), Shapes() as shapes:
        forward = attention(*inputs[:3], encoding, q_positions=torch.arange(70), hidden=inputs[3])
    torch.testing.assert_close(forward, parts)
    assert shapes.seen and not [shape for shape in shapes.seen if shape[-2:] == (70, 70)]
    for ours, expected in zip(of_parts, gradients, strict=True):
        torch.testing.assert_close(ours, expected)
        assert expected.abs().sum() > 0


@pytest.mark.parametrize("name", [name for name in MAKE if name != "dape v2"])
def test_a_padded_row_decodes_as_if_it_were_alone(name):
    encoding, (q, k, v, hidden) = make(name), tokens(9)
    at = torch.stack((torch.arange(9), torch.tensor([0, 0, 0, 1, 2, 3, 4, 5, 6])))
    padding, cache, parts = torch.tensor([[False] * 9, [True] * 2 + [False] * 7]), KVCache(), []
    for rows in (slice(0, 5), slice(5, 6), slice(6, 7), slice(7, 9)):
        new = {"q_positions": at[:, rows], "hidden": hidden[:, rows], "cache": cache}
        if rows.start == 0:
            new["key_padding_mask"] = padding[:, rows]
        parts.append(attention(*(x[:, :, rows] for x in (q, k, v)), encoding, **new))
    for row, begin in ((0, 0), (1, 2)):
        one = [x[row : row + 1, :, begin:] for x in (q, k, v)]
        alone = attention(*one, encoding, q_positions=at[row, begin:], hidden=hidden[row : row + 1, begin:])
        torch.testing.assert_close(torch.cat(parts, -2)[row : row + 1, :, begin:], alone)
    if encoding.gated:
        with pytest.raises(ValueError, match=r"hidden must be \[B, K, dim\] .* got None"):
            attention(*(x[:, :, :1] for x in (q, k, v)), encoding, q_positions=at[:, :1] + 9, cache=cache)
        assert len(cache) == 9


@pytest.mark.parametrize("length", [1, 64, 65, 130])
def test_path_is_the_product_of_reflections(length):
    encoding, (q, k, _, hidden) = make("path"), tokens(length, batch=1)
    gates = encoding.gates(hidden, torch.arange(length)[None])
    at, seen = torch.arange(length)[None], torch.ones(1, 1, length, length).tril().bool()
    ours = q @ k.repeat_interleave(2, 1).mT + encoding.content_bias(q, k, Tokens(at, at, seen, gates), 1.0)
    for head in range(HEADS):
        w, beta = gates[0, head // 2, :, :-1], gates[0, head // 2, :, -1]
        for i in {0, length // 2, length - 1}:
            x, row = q[0, head, i], []
            for j in range(i, -1, -1):
                row.append(x @ k[0, head // 2, j])
                x = x - beta[j] * (x @ w[j]) * w[j]
            torch.testing.assert_close(ours[0, head, i, : i + 1], torch.stack(row[::-1]))


def test_a_long_row_of_gates_is_added_up_in_float64():
    """A sum of about -35,000: float32 would lose two thousandths of the last logits."""
    encoding, (q, k, _, _), length = make("fox", torch.float32), tokens(9, dtype=torch.float32), 50_000
    log_f, at = torch.full((1, HEADS, length, 1), -0.7), torch.arange(length)[None]
    row = Tokens(at[:, -1:], at, torch.ones(1, 1, 1, length, dtype=torch.bool), log_f)
    bias = encoding.content_bias(q[:1, :, :1], k[:1], row, 1.0)
    torch.testing.assert_close(bias[0, 0, 0, -4:], torch.tensor([-2.1, -1.4, -0.7, 0.0]))


@pytest.mark.parametrize("name", ["cope", "fox", "path", "stick-breaking"])
@pytest.mark.parametrize(
    "change, message",
    [
        ({"causal": False}, "causal must be True for"),
        ({"attn_mask": torch.ones(5, 5).bool()}, "attn_mask must be None for .* counts along"),
        ({"q_positions": torch.arange(5).flip(0)}, r"k_positions, .*must rise along the row for .* \[4, 3, 2, 1, 0\]"),
        ({"k_positions": torch.arange(5) + 1}, "q_positions must be the last of k_positions for"),
        ({"document_ids": torch.tensor([1, 1, 0, 0, 0])}, "k_positions, and before them document_ids, must rise"),
        ({"key_padding_mask": (torch.arange(5) == 2).expand(2, 5)}, "must rise .* sort tokens, padding in front"),
    ],
)
def test_sums_along_the_keys_need_keys_in_order(name, change, message):
    *qkv, hidden = tokens(5)
    with pytest.raises(ValueError, match=message):
        attention(*qkv, make(name), **{"q_positions": torch.arange(5), "hidden": hidden, **change})


@pytest.mark.parametrize("span, most", [(256, 512), (16, 64), (5, 64), (7, 20), (4, 4), (2, 8), (32, 512)])
def test_deberta_buckets_are_those_of_transformers(span, most):
    theirs = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2").make_log_bucket_position
    apart = torch.arange(-3000, 3001)
    expected = (theirs(apart, span, most).long() + span).clamp(0, 2 * span - 1)
    assert torch.equal(DeBERTa(1, 2, 2, span, max_position=most)._delta(apart), expected)


def test_whole_deberta_layer_of_transformers():
    v2 = pytest.importorskip("transformers.models.deberta_v2.modeling_deberta_v2")
    config = v2.DebertaV2Config(
        hidden_size=16, num_attention_heads=2, position_buckets=4, max_relative_positions=8, relative_attention=True,
        pos_att_type=["c2p", "p2c"], share_att_key=True, norm_rel_ebd="none", attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    layer = v2.DisentangledSelfAttention(config).double().eval()
    encoding = DeBERTa(2, 8, 16, span=4, max_position=8).double()
    encoding.key.load_state_dict(layer.key_proj.state_dict())
    encoding.query.load_state_dict(layer.query_proj.state_dict())
    x = torch.randn(1, 30, 16, dtype=torch.float64)  # far beyond max_position
    q, k, v = (
        torch.unflatten(proj(x), -1, (2, 8)).transpose(1, 2)
        for proj in (layer.query_proj, layer.key_proj, layer.value_proj)
    )
    ours = attention(q, k, v, encoding, q_positions=torch.arange(30), causal=False)
    theirs = layer(x, torch.ones(1, 1, 30, 30), rel_embeddings=encoding.table.weight)[0]
    torch.testing.assert_close(ours.transpose(1, 2).flatten(2), theirs, rtol=0, atol=1e-6)  # its scale is float32


def test_tempered_is_llama_4s_factor_and_one_for_each_head():
    encoding, (q, k, _, _) = Tempered(HEADS, scheme=LogFloor(beta=0.1, length=8192, offset=1)), tokens(3)
    at = torch.tensor([8190, 8191, 16383])
    with torch.no_grad():
        encoding.heads.copy_(torch.arange(1.0, 5.0))
    factor = torch.log1p(torch.floor((at + 1.0) / 8192)) * 0.1 + 1.0
    expected = q * (torch.arange(1, 5).view(-1, 1, 1) * factor[:, None])
    torch.testing.assert_close(encoding.rotate(q, k, at, at)[0], expected, rtol=1e-6, atol=0)


def test_every_fourth_layer_sees_everything_without_positions():
    spec = RotarySpec(head_dim=HEAD_DIM)
    layers, (q, k, v, _) = interleaved_nope(8, spec, window=3), tokens(9)
    assert [i for i, layer in enumerate(layers) if type(layer) is NoPE] == [3, 7]
    at = torch.arange(9)
    near = (at[:, None] - at < 3) & (at[:, None] >= at)
    for kernel in ("sdpa", "reference"):
        ours = attention(q, k, v, layers[0], q_positions=at, kernel=kernel)
        torch.testing.assert_close(ours, attention(q, k, v, Rotary(spec), q_positions=at, attn_mask=near))
    with torch.no_grad():
        torch.testing.assert_close(attention(q, k, v, layers[0], q_positions=at, kernel="flex"), ours)
    last = (x[:, :, -3:] for x in (k, v))  # a cache needs to keep no more than the window
    row = attention(q[:, :, -1:], *last, layers[0], q_positions=at[-1:], k_positions=at[-3:])
    torch.testing.assert_close(row, ours[:, :, -1:])


MISTAKES = """
CoPE(4, 0) => num_positions must be an integer of at least 1, got 0
DAPEv2(ALiBi(2), 2, kernel=2) => kernel must be odd, so that a key stands in its middle, got 2
PaTH(4, 8, 16, kv_heads=3) => kv_heads must divide num_heads = 4, got 3
DeBERTa(2, 4, 8, 4, max_position=3) => max_position must be an integer of at least 4, got 3
StickBreaking(attend_current=1) => attend_current must be True or False, got 1
Sandwich(0) => num_heads must be an integer of at least 1, got 0
Tempered(2, scheme=0.5) => scheme must be a LogFloor or Power … got 0.5
run(CoPE(4, 3)) => q must have the head_dim 4 that CoPE was made for, got 8
run(DAPE(NoPE(), 4)) => inner must be an encoding that adds to the logits, got NoPE; ALiBi(
run(FoX(2, DIM)) => q must have the 2 heads that FoX was made for, got 4
run(DAPEv2(ALiBi(4), 4), cache=KVCache()) => must be None for DAPEv2: a row depends on the key behind
run(StickBreaking(), kernel='sdpa') => never forms the softmax weights that StickBreaking needs
"""
test_mistakes_are_named = refused(MISTAKES, globals(), of=(encodings,))


def run(encoding, **more):
    *qkv, hidden = tokens(5, dtype=torch.float32)
    attention(*qkv, encoding, q_positions=torch.arange(5), hidden=hidden, **more)


@pytest.mark.parametrize("name", ["path", "path fox"])
@pytest.mark.parametrize("at", [torch.arange(9), torch.arange(9).remainder(5), 3 * torch.arange(9)])
def test_gates_go_by_documents_whatever_their_positions(name, at):
    encoding, (q, k, v, hidden) = make(name), tokens(9)
    documents, cache = (torch.arange(9) >= 5).long(), KVCache()
    packed = attention(q, k, v, encoding, q_positions=at, hidden=hidden, document_ids=documents)
    parts = [slice(0, 5), slice(5, 9)]
    alone = [
        attention(q[:, :, p], k[:, :, p], v[:, :, p], encoding, q_positions=torch.arange(9)[p], hidden=hidden[:, p])
        for p in parts
    ]
    torch.testing.assert_close(packed, torch.cat(alone, 2))
    chunks = [slice(0, 4), slice(4, 6), slice(6, 7), slice(7, 9)]
    decoded = [
        attention(
            q[:, :, p], k[:, :, p], v[:, :, p], encoding, q_positions=at[p], hidden=hidden[:, p],
            document_ids=documents[p], cache=cache,
        )
        for p in chunks
    ]  # fmt: skip
    torch.testing.assert_close(torch.cat(decoded, 2), packed)


@pytest.mark.parametrize("name", MAKE)
def test_no_token_gives_no_row(name):
    q, k, v, hidden = tokens(0)
    encoding = make(name)
    hidden = hidden if encoding.gated else None
    assert attention(q, k, v, encoding, q_positions=torch.arange(0), hidden=hidden).shape == q.shape


def test_what_dape_corrects_still_says_how_it_is_called():
    q, k, v, _ = tokens(5, dtype=torch.float32)
    with pytest.raises(ValueError, match="causal must be True for DAPE"):
        attention(q, k, v, DAPE(FIRE(HEADS), HEADS), q_positions=torch.arange(5), causal=False)
    assert DAPE(TUPE(HEADS, HEAD_DIM, 8), HEADS).default_scale(HEAD_DIM) == (2 * HEAD_DIM) ** -0.5
    for inner in (FoX(HEADS, DIM), StickBreaking(), nn.Linear(2, 2)):
        with pytest.raises(ValueError, match=r"inner must be an encoding that adds to the logits and nothing else"):
            DAPE(inner, HEADS)


@torch.no_grad()
def test_flex_takes_no_gates_of_other_heads():
    q, k, v, hidden = tokens(5, dtype=torch.float32)
    with pytest.raises(ValueError, match=f"q must have the {HEADS + 1} heads that FoX"):
        attention(q, k, v, FoX(HEADS + 1, DIM), q_positions=torch.arange(5), hidden=hidden, kernel="flex")
