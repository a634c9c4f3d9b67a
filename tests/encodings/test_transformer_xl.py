import pytest
import torch

from phasor.encodings import TransformerXL, sinusoids

HEADS, HEAD_DIM, DIM, SCALE = 4, 8, 16, 0.35


def four_terms(x, w_q, w_e, encoding, positions, *, u_through_w_q=False, swap_keys=False, flip=False):
    """Dai et al. 2019, section 3.3, eq. (b): terms (a) to (d), one pair at a time -> [H, Q, K].

    The keywords turn on mistakes that tutorials print.
    """
    w_r = encoding.r_proj.weight.double().view(HEADS, HEAD_DIM, DIM)
    u, v = encoding.u.double(), encoding.v.double()
    out = torch.zeros(HEADS, len(positions), len(positions), dtype=torch.float64)
    for h in range(HEADS):
        w_content, w_position = (w_r[h], w_e[h]) if swap_keys else (w_e[h], w_r[h])
        u_h = w_q[h][:, :HEAD_DIM] @ u[h] if u_through_w_q else u[h]
        for i, m in enumerate(positions.tolist()):
            for j, n in enumerate(positions.tolist()):
                r = sinusoids(torch.tensor(n - m if flip else m - n), DIM, layout="sin_cos", dtype=torch.float64)
                query, content, position = w_q[h] @ x[i], w_content @ x[j], w_position @ r
                out[h, i, j] = query @ content + query @ position + u_h @ content + v[h] @ position
    return out * SCALE


@pytest.fixture
def layer(make_encoding):
    x = torch.randn(6, DIM, dtype=torch.float64)  # the paper's: the sinusoid is as wide as the model
    w_q, w_e = torch.randn(2, HEADS, HEAD_DIM, DIM, dtype=torch.float64)
    return x, w_q, w_e, make_encoding("transformer-xl"), torch.tensor([0, 1, 2, 40, 5, 1000])


def ours(x, w_q, w_e, encoding, positions):
    q, k = (torch.einsum("hdc,sc->hsd", w, x).unsqueeze(0) for w in (w_q, w_e))
    return (SCALE * q @ k.transpose(-1, -2) + encoding.bias(q, k, positions, positions, SCALE))[0]


def test_equals_the_four_terms(layer):
    torch.testing.assert_close(ours(*layer), four_terms(*layer))


def test_xlnet_layer(layer, make_qkv):
    xlnet = pytest.importorskip("transformers.models.xlnet.modeling_xlnet")
    config = xlnet.XLNetConfig(
        d_model=HEADS * HEAD_DIM, n_head=HEADS, n_layer=1, d_inner=8, vocab_size=10, dropout=0.0, attn_type="bi"
    )
    model = xlnet.XLNetModel(config).double().eval()
    theirs = model.layer[0].rel_attn
    encoding = TransformerXL(HEADS, HEAD_DIM, config.d_model).double()
    with torch.no_grad():
        theirs.r_w_bias.normal_()
        theirs.r_r_bias.normal_()
        encoding.u.copy_(theirs.r_w_bias)
        encoding.v.copy_(theirs.r_r_bias)
        encoding.r_proj.weight.copy_(theirs.r.flatten(1).T)
    q, k, v = make_qkv(9)
    r = model.relative_positional_encoding(9, 9, bsz=2).double()
    k_r = torch.einsum("ibh,hnd->ibnd", r, theirs.r)
    first = [x.permute(2, 0, 1, 3) for x in (q, k, v)]  # [S, B, H, D]
    _, weights = theirs.rel_attn_core(*first, k_r, output_attentions=True)  # [Q, K, B, H]
    t = torch.arange(9)
    logits = theirs.scale * q @ k.transpose(-1, -2) + encoding.bias(q, k, t, t, theirs.scale)
    # r comes from XLNet in float32: sines of angles up to 9 with a relative error of eps
    atol = 100 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(logits.softmax(-1), weights.permute(2, 3, 0, 1), rtol=0, atol=atol)
