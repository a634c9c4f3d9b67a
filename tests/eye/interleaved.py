"""Rotations of neighbouring channels: slices, writes in place, reshapes, and the input's pairs written back apart."""

import torch
import torch.nn.functional as F
from torch import nn

from eye.skeleton import ARANGE, DIM, HEADS, WIDTH, Attention, both, decoder
from eye.truth import Truth, Turn, halves, ladder, neighbours


def angles(x, base=10000.0, width=DIM):
    """[tokens, width / 2] for x [..., tokens, channels]."""
    return torch.outer(torch.arange(x.shape[-2]).float(), base ** (-torch.arange(0, width, 2).float() / width))


# --- GPT-J: tables of repeated columns, every second channel, a part of the width


def rotate_every_two(x):
    x1, x2 = x[:, :, :, ::2], x[:, :, :, 1::2]
    return torch.stack((-x2, x1), dim=-1).flatten(-2)


class GptjAttention(nn.Module):
    """[batch, tokens, heads, channels] while it rotates."""

    rotary_dim = 4

    def __init__(self, layer=0):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        inv_freq = 1.0 / (10000 ** (torch.arange(0, self.rotary_dim, 2, dtype=torch.int64) / self.rotary_dim))
        sinusoid = torch.einsum("i , j -> i j", torch.arange(256).float(), inv_freq).float()
        self.register_buffer("embed_positions", torch.cat((sinusoid.sin(), sinusoid.cos()), dim=1), persistent=False)

    def forward(self, x):
        position_ids = torch.arange(x.shape[1])[None]
        repeated = position_ids.unsqueeze(-1).repeat(1, 1, self.embed_positions.shape[-1])
        sincos = torch.gather(self.embed_positions[None].repeat(1, 1, 1), 1, repeated)
        sin, cos = (t[:, :, None].repeat_interleave(2, 3) for t in sincos.chunk(2, dim=-1))
        q, k, v = (proj(x).view(*x.shape[:2], HEADS, DIM) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (
            torch.cat([r * cos + rotate_every_two(r) * sin, p], dim=-1)
            for r, p in ((t[..., : self.rotary_dim], t[..., self.rotary_dim :]) for t in (q, k))
        )
        q, k, v = (t.permute(0, 2, 1, 3) for t in (q, k, v))
        weights = torch.matmul(q, k.transpose(-1, -2)) / torch.sqrt(torch.tensor(DIM, dtype=torch.float32))
        weights = weights.where(torch.ones(weights.shape[-2:], dtype=torch.bool).tril(), torch.finfo(q.dtype).min)
        out = torch.matmul(weights.softmax(dim=-1), v)
        return self.o_proj(out.permute(0, 2, 1, 3).flatten(2))


# --- writes


class InPlace(Attention):
    """Writes into every second channel of q and k themselves."""

    def rotate(self, q, k):
        cos, sin = angles(q).cos(), angles(q).sin()
        for x in (q, k):
            even, odd = x[..., ::2].clone(), x[..., 1::2].clone()
            x[..., ::2] = even * cos - odd * sin
            x[..., 1::2] = even * sin + odd * cos
        return q, k


class IntoEmpty(Attention):
    """Wan's: writes into a tensor that starts empty, from the transposed one."""

    def rotate(self, q, k):
        cos, sin = (t[None, :, None].repeat_interleave(2, -1) for t in (angles(q).cos(), angles(q).sin()))
        return self.turned(q.transpose(1, 2), cos, sin), self.turned(k.transpose(1, 2), cos, sin)

    @staticmethod
    def turned(x, cos, sin):
        x1, x2 = x.unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = cos[..., 0::2], sin[..., 1::2]
        out = torch.empty_like(x)
        out[..., 0::2] = x1 * cos - x2 * sin
        out[..., 1::2] = x1 * sin + x2 * cos
        return out.type_as(x).transpose(1, 2)


class IntoHalves(Attention):
    """q[..., :d] written in place by a method with an underscore, tables that never leave the loop."""

    def rotate(self, q, k):
        d = DIM // 2
        for x in (q, k):
            for t in range(x.shape[2]):
                angle = t * 10000.0 ** (-torch.arange(d, dtype=torch.float64) / d)
                c, s = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
                a, b = x[:, :, t, :d].clone(), x[:, :, t, d:].clone()
                x[:, :, t, :d].mul_(c).sub_(b * s)
                x[:, :, t, d:].mul_(c).add_(a * s)
        return q, k


# --- reshapes


class Einops(Attention):
    """'... (d r) -> ... d r' by hand, as rotary-embedding-torch does; frequencies repeated the same way."""

    def rotate(self, q, k):
        freqs = angles(q).repeat_interleave(2, dim=-1)
        return tuple(x * freqs.cos() + self.rotated(x) * freqs.sin() for x in (q, k))

    @staticmethod
    def rotated(x):
        x = x.reshape(*x.shape[:-1], -1, 2)
        x1, x2 = x.unbind(dim=-1)
        return torch.stack((-x2, x1), dim=-1).reshape(*x.shape[:-2], -1)


class StackedQueriesAndKeys(nn.Module):
    """One projection, and one rotation of queries and keys stacked (flash-attn's qkv[:, :, :2])."""

    def __init__(self, layer=0):
        super().__init__()
        self.Wqkv, self.o_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        qkv = self.Wqkv(x).reshape(x.shape[0], x.shape[1], 3, HEADS, DIM)
        freqs = angles(x, width=DIM)
        cos, sin = freqs.cos()[None, :, None, None], freqs.sin()[None, :, None, None]
        qk = qkv[:, :, :2]
        even, odd = qk[..., 0::2], qk[..., 1::2]
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
        q, k, v = torch.cat([turned, qkv[:, :, 2:]], dim=2).permute(2, 0, 3, 1, 4)
        return self.o_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Inlined(nn.Module):
    """No function of its own: the rotation stands between the projections and the einsum of the scores."""

    def __init__(self, layer=0):
        super().__init__()
        self.to_q, self.to_kv = nn.Linear(WIDTH, WIDTH, bias=False), nn.Linear(WIDTH, 2 * WIDTH, bias=False)
        self.to_out = nn.Linear(WIDTH, WIDTH)
        self.theta = nn.Parameter(10000.0 ** (-torch.arange(0, DIM, 2) / DIM), requires_grad=False)

    def forward(self, x):
        b, n, _ = x.shape
        q, (k, v) = self.to_q(x), self.to_kv(x).chunk(2, dim=-1)
        q, k, v = (t.reshape(b, n, HEADS, DIM) for t in (q, k, v))
        phi = torch.arange(n)[None, :, None, None] * self.theta
        q0, q1, k0, k1 = q[..., ::2], q[..., 1::2], k[..., ::2], k[..., 1::2]
        q = torch.stack([q0 * phi.cos() - q1 * phi.sin(), q0 * phi.sin() + q1 * phi.cos()], dim=-1).flatten(3)
        k = torch.stack([k0 * phi.cos() - k1 * phi.sin(), k0 * phi.sin() + k1 * phi.cos()], dim=-1).flatten(3)
        sim = torch.einsum("b i h d, b j h d -> b h i j", q, k) * DIM**-0.5
        sim = sim.masked_fill(~torch.ones(n, n, dtype=torch.bool).tril(), -torch.finfo(sim.dtype).max)
        out = torch.einsum("b h i j, b j h d -> b i h d", sim.softmax(dim=-1), v)
        return self.to_out(out.reshape(b, n, -1))


# --- read side by side, written apart


class Permuted(Attention):
    """DeepSeek-V3's: a transposed view before rotate_half, so pairs (2i, 2i + 1) come out as (i, i + d / 2)."""

    def rotate(self, q, k):
        emb = torch.cat((angles(q), angles(q)), dim=-1)
        out = []
        for x in (q, k):
            b, h, s, d = x.shape
            x = x.view(b, h, s, d // 2, 2).transpose(4, 3).reshape(b, h, s, d)
            out.append(x * emb.cos() + torch.cat((-x[..., d // 2 :], x[..., : d // 2]), dim=-1) * emb.sin())
        return out


class CatOfEvenAndOdd(Attention):
    """Reads even and odd channels and concatenates the results."""

    def rotate(self, q, k):
        c, s = angles(q).cos(), angles(q).sin()
        turn = lambda x: torch.cat([x[..., ::2] * c - x[..., 1::2] * s, x[..., ::2] * s + x[..., 1::2] * c], -1)  # noqa: E731
        return turn(q), turn(k)


# --- frequencies of other kinds


class Learned(Attention):
    """Frequencies are trained: a parameter of each layer."""

    start = (1.25, 0.5, 0.03125, 0.0078125)

    def __init__(self, layer=0):
        super().__init__()
        self.freqs = nn.Parameter(torch.tensor(self.start))

    def rotate(self, q, k):
        angle = torch.arange(q.shape[2])[:, None] * self.freqs
        out = []
        for x in (q, k):
            a, b = x[..., ::2], x[..., 1::2]
            out.append(
                torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(3)
            )
        return out


class OfEachHead(Learned):
    """Every head has frequencies of its own."""

    start = tuple(tuple(2.0 ** -(h + 2 * i) for i in range(DIM // 2)) for h in range(HEADS))

    def rotate(self, q, k):
        return self.turned(q, self.freqs), self.turned(k, self.freqs)

    def turned(self, x, freqs):
        angle = torch.arange(x.shape[2])[:, None] * freqs[:, None]
        a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
        return torch.stack([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1).flatten(3)


class SomeStand(Learned):
    """Two of four frequencies are zero (p-RoPE, proportional)."""

    start = (1.0, 0.1, 0.0, 0.0)


def turn(**changes):
    fields = {"pairs": neighbours(DIM), "inv_freq": ladder(10000.0, DIM), "positions": ARANGE}
    return Turn(**(fields | changes))


APART = turn(pairs=halves(DIM), sources=neighbours(DIM))
INTERLEAVED = [
    decoder("gptj", GptjAttention, turn(pairs=neighbours(4), inv_freq=ladder(10000.0, 4), passing=(4, 5, 6, 7))),
    decoder("in place", InPlace, turn()),
    decoder("into an empty tensor", IntoEmpty, turn()),
    decoder("in place token by token", IntoHalves, turn(pairs=halves(DIM))),
    decoder("einops", Einops, turn()),
    decoder("stacked queries and keys", StackedQueriesAndKeys, turn()),
    decoder("inlined", Inlined, turn()),
    decoder("permuted", Permuted, APART),
    decoder("even and odd concatenated", CatOfEvenAndOdd, APART),
    decoder("learned frequencies", Learned, turn(inv_freq=list(Learned.start))),
    decoder("frequencies of each head", OfEachHead,
            Truth(both(turn(inv_freq=[list(h) for h in OfEachHead.start])), rotary=False)),
    decoder("frequencies of zero", SomeStand, turn(inv_freq=list(SomeStand.start))),
]  # fmt: skip
