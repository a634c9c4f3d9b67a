"""Rotations as products of complex numbers."""

import torch
import torch.nn.functional as F
from torch import nn

from eye.skeleton import ARANGE, DIM, HEADS, WIDTH, Attention, Decoder, decoder
from eye.truth import Site, Truth, Turn, halves, ladder, neighbours


def precompute_freqs_cis(dim, end, theta=10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    freqs = torch.outer(torch.arange(end), freqs)
    return torch.polar(torch.ones_like(freqs), freqs)


def reshape_for_broadcast(freqs_cis, x):
    shape = [d if i == 1 or i == x.ndim - 1 else 1 for i, d in enumerate(x.shape)]
    return freqs_cis.view(*shape)


class MetaAttention(Attention):
    """Llama's first code: [batch, tokens, heads, channels], complex numbers of the model's buffer."""

    kv_heads = 2

    def forward(self, x, freqs_cis):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        xq, xk, xv = (t.view(bsz, seqlen, -1, DIM) for t in (xq, xk, xv))
        xq_ = torch.view_as_complex(xq.float().reshape(*xq.shape[:-1], -1, 2))
        xk_ = torch.view_as_complex(xk.float().reshape(*xk.shape[:-1], -1, 2))
        freqs_cis = reshape_for_broadcast(freqs_cis, xq_)
        xq = torch.view_as_real(xq_ * freqs_cis).flatten(3).type_as(xq)
        xk = torch.view_as_real(xk_ * freqs_cis).flatten(3).type_as(xk)
        xk, xv = (t[:, :, :, None].expand(bsz, seqlen, 2, 2, DIM).reshape(bsz, seqlen, 4, DIM) for t in (xk, xv))
        xq, keys, values = xq.transpose(1, 2), xk.transpose(1, 2), xv.transpose(1, 2)
        scores = torch.matmul(xq, keys.transpose(2, 3)) / DIM**0.5
        scores = scores + torch.triu(torch.full((seqlen, seqlen), float("-inf")), diagonal=1)
        scores = F.softmax(scores.float(), dim=-1).type_as(xq)
        return self.o_proj(torch.matmul(scores, values).transpose(1, 2).contiguous().view(bsz, seqlen, -1))


class MetaDecoder(Decoder):
    def __init__(self, attention):
        super().__init__(attention)
        self.register_buffer("freqs_cis", precompute_freqs_cis(DIM, 64), persistent=False)

    def positional(self, h, position_ids):
        return (self.freqs_cis[: h.shape[1]],)


class ListOfTables(nn.Module):
    """No buffer: a Python list with complex numbers for each layer; qkv in one projection, scores without a mask."""

    tables = tuple(precompute_freqs_cis(DIM, 32, theta=theta) for theta in (10000.0, 500.0))

    def __init__(self, layer):
        super().__init__()
        self.c_attn, self.o_proj, self.layer = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), layer

    def forward(self, x):
        q, k, v = self.c_attn(x).split(WIDTH, dim=2)
        q, k, v = (t.view(*x.shape[:2], HEADS, DIM).transpose(1, 2) for t in (q, k, v))
        table = self.tables[self.layer][: x.shape[1]]
        as_complex = lambda t: torch.view_as_complex(t.contiguous().unflatten(-1, (-1, 2)))  # noqa: E731
        q, k = (torch.view_as_real(as_complex(t) * table).flatten(-2).to(x.dtype) for t in (q, k))
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class ExponentOfI(Attention):
    """torch.complex of the two halves, multiplied by exp(i angle)."""

    def rotate(self, q, k):
        angle = torch.arange(q.shape[-2], dtype=torch.float64)[:, None] * 10000 ** (
            -torch.arange(4, dtype=torch.float64) / 4
        )
        turned = [torch.complex(*x.chunk(2, -1)) * torch.exp(1j * angle) for x in (q, k)]
        return tuple(torch.cat([z.real, z.imag], -1).to(q.dtype) for z in turned)


class Conjugate(MetaAttention):
    """Backwards: the product with the conjugate."""

    kv_heads = HEADS

    def forward(self, x, freqs_cis):
        q, k, v = (proj(x).unflatten(-1, (HEADS, -1)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        turn = lambda t: torch.view_as_real(self.z(t) * freqs_cis[:, None].conj()).flatten(-2).type_as(t)  # noqa: E731
        out = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (turn(q), turn(k), v)))
        return self.o_proj(out.transpose(1, 2).flatten(2))

    @staticmethod
    def z(t):
        return torch.view_as_complex(t.float().reshape(*t.shape[:-1], -1, 2))


class ValuesToo(Conjugate):
    """Queries, keys and values turn, and the output is turned back (a group acting on all of attention)."""

    def forward(self, x, freqs_cis):
        q, k, v = (proj(x).unflatten(-1, (HEADS, -1)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        turn = lambda t, by: torch.view_as_real(self.z(t) * by[:, None]).flatten(-2).type_as(t)  # noqa: E731
        q, k, v = (turn(t, freqs_cis).transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        return self.o_proj(turn(out, freqs_cis.conj()).flatten(2))


PLAIN = Turn(neighbours(DIM), ladder(10000.0, DIM), ARANGE)
BACK = Turn(neighbours(DIM), [-f for f in ladder(10000.0, DIM)], ARANGE)
OF_LAYERS = tuple(Turn(neighbours(DIM), ladder(base, DIM), ARANGE) for base in (10000.0, 500.0))
COMPLEX = [
    decoder("complex buffer", MetaAttention, PLAIN, MetaDecoder),
    decoder("complex list of layers", ListOfTables,
            Truth(tuple(Site(f"layers.{i}.attn", q=t, k=t) for i, t in enumerate(OF_LAYERS)))),
    decoder("complex halves", ExponentOfI, Turn(halves(DIM), ladder(10000.0, DIM), ARANGE)),
    decoder("conjugate", Conjugate, BACK, MetaDecoder),
    decoder("values and output", ValuesToo,
            Truth(tuple(Site(f"layers.{i}.attn", PLAIN, PLAIN, PLAIN, BACK) for i in range(2))), MetaDecoder),
]  # fmt: skip
