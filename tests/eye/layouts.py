"""The same rotation around attentions of other forms: axis orders, shared keys, windows, streams, heads one by one."""

import torch
import torch.nn.functional as F
from torch import nn

from eye.skeleton import ARANGE, DIM, HEADS, WIDTH, Attention, Decoder, decoder, ids
from eye.truth import Case, Site, Truth, Turn, halves, ladder, neighbours


def turned(x, positions, axis, base=10000.0):
    """Rotation by halves of x, whose axis ``axis`` (from the end) is that of the tokens."""
    width = x.shape[-1]
    angle = positions[:, None] * base ** (-torch.arange(0, width, 2, device=x.device) / width)
    angle = angle.view(angle.shape[0], *[1] * (-axis - 2), width // 2)
    a, b = x.chunk(2, -1)
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), -1)


# --- tokens first


class TokensFirst(Decoder):
    """Megatron's order: hidden states are [tokens, batch, channels]."""

    def forward(self, input_ids):
        h = self.embed(input_ids).transpose(0, 1).contiguous()
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h)).transpose(0, 1)


class MegatronAttention(nn.Module):
    """[tokens, batch, heads, channels]; scores by baddbmm over batch times heads."""

    def __init__(self, layer=0):
        super().__init__()
        self.linear_qkv, self.o_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        s, b, _ = x.shape
        q, k, v = self.linear_qkv(x).view(s, b, HEADS, 3 * DIM).split(DIM, dim=-1)
        q, k = turned(q, torch.arange(s), -4), turned(k, torch.arange(s), -4)
        q, k, v = (t.reshape(s, b * HEADS, DIM) for t in (q, k, v))
        buffer = torch.empty(b * HEADS, s, s, dtype=q.dtype)
        scores = torch.baddbmm(buffer, q.transpose(0, 1), k.transpose(0, 1).transpose(1, 2), beta=0.0, alpha=DIM**-0.5)
        scores = scores.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), -10000.0)
        context = torch.bmm(scores.softmax(-1), v.transpose(0, 1))
        return self.o_proj(context.view(b, HEADS, s, DIM).permute(2, 0, 1, 3).reshape(s, b, WIDTH))


class FairseqAttention(Attention):
    """[tokens, batch, heads * channels], then [batch * heads, tokens, channels], rotated there."""

    def forward(self, x):
        tgt_len, bsz, embed_dim = x.size()
        q = self.q_proj(x) * DIM**-0.5
        q, k, v = (
            t.contiguous().view(tgt_len, bsz * HEADS, DIM).transpose(0, 1) for t in (q, self.k_proj(x), self.v_proj(x))
        )
        q, k = turned(q, torch.arange(tgt_len), -2), turned(k, torch.arange(tgt_len), -2)
        weights = torch.bmm(q, k.transpose(1, 2)) + torch.full((tgt_len, tgt_len), -torch.inf).triu(1)
        attn = torch.bmm(F.softmax(weights, dim=-1), v)
        return self.o_proj(attn.transpose(0, 1).contiguous().view(tgt_len, bsz, embed_dim))


class Packed(Attention):
    """[tokens, heads, channels] without a batch: two documents end to end, positions from 0 in each."""

    def forward(self, x, positions):
        q, k, v = (p(x[0]).view(-1, HEADS, DIM) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = turned(q, positions[0], -3), turned(k, positions[0], -3)
        document = (positions[0] == 0).cumsum(0)
        scores = torch.einsum("qhd,khd->hqk", q, k) * DIM**-0.5
        scores = scores.masked_fill(document[:, None] != document[None], -torch.inf)
        return self.o_proj(torch.einsum("hqk,khd->qhd", scores.softmax(-1), v).flatten(1))[None]


class GivesPositions(Decoder):
    def positional(self, h, position_ids):
        return (position_ids,)


PACKED = torch.tensor([[0, 1, 2, 3, 0, 1, 2]])


# --- torch's own modules


class Multihead(nn.MultiheadAttention):
    """A subclass that keeps the weights of the parent and attends itself."""

    def __init__(self, layer=0):
        super().__init__(WIDTH, HEADS, batch_first=True)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for t in self.in_proj(x))
        q, k = turned(q, torch.arange(x.shape[1]), -2), turned(k, torch.arange(x.shape[1]), -2)
        return self.out_proj(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))

    def in_proj(self, x):
        return F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)


class Grouped(Attention):
    """Two key heads of four, left to the fused attention, with a mask of its own."""

    kv_heads = 2

    def rotate(self, q, k):
        return turned(q, torch.arange(q.shape[2]), -2), turned(k, torch.arange(k.shape[2]), -2)

    def attend(self, q, k, v):
        mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


class OneKey(Grouped):
    """One key head, broadcast by the product."""

    kv_heads = 1

    def attend(self, q, k, v):
        return (q @ k.mT / DIM**0.5).softmax(-1) @ v


# --- heads one by one, as in a first lecture


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, DIM, bias=False) for _ in range(3))
        self.register_buffer("tril", torch.tril(torch.ones(16, 16)))

    def forward(self, x):
        _, T, _ = x.shape
        q, k = (turned(t, torch.arange(T), -2) for t in (self.query(x), self.key(x)))
        wei = q @ k.transpose(-2, -1) * DIM**-0.5
        wei = F.softmax(wei.masked_fill(self.tril[:T, :T] == 0, float("-inf")), dim=-1)
        return wei @ self.value(x)


class HeadByHead(nn.Module):
    def __init__(self, layer=0):
        super().__init__()
        self.heads, self.proj = nn.ModuleList(Head() for _ in range(2)), nn.Linear(2 * DIM, WIDTH)

    def forward(self, x):
        return self.proj(torch.cat([h(x) for h in self.heads], dim=-1))


# --- windows


class Windowed(Grouped):
    """A sliding window of three by a mask that is added."""

    kv_heads = HEADS

    def attend(self, q, k, v):
        apart = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])
        mask = torch.zeros(apart.shape, dtype=q.dtype).masked_fill((apart < 0) | (apart > 2), -torch.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


class Unfolded(Grouped):
    """Blocks of three queries; the keys of each block and of the one before it by unfold."""

    kv_heads, block = HEADS, 3

    def attend(self, q, k, v):
        w = self.block
        k, v = (F.pad(t, (0, 0, w, 0)).unfold(2, 2 * w, w).transpose(-1, -2) for t in (k, v))
        scores = torch.einsum("bhnqd,bhnkd->bhnqk", q.unflatten(2, (-1, w)), k) * DIM**-0.5
        back = torch.arange(w)[:, None] + w - torch.arange(2 * w)
        scores = scores.masked_fill((back < 0) | (back > w), -torch.inf)
        return torch.einsum("bhnqk,bhnkd->bhnqd", scores.softmax(-1), v).flatten(2, 3)


class Chunked(Grouped):
    """Queries in chunks of four, each with all keys (attention that saves memory)."""

    kv_heads = HEADS

    def attend(self, q, k, v):
        return torch.cat([(chunk @ k.mT / DIM**0.5).softmax(-1) @ v for chunk in q.split(4, dim=2)], dim=2)


# --- latent keys


class Latent(nn.Module):
    """DeepSeek's: the heads' keys come from a latent; four channels that turn are one key for all heads."""

    nope, rope = DIM, 4

    def __init__(self, layer=0):
        super().__init__()
        self.q_a, self.q_b = nn.Linear(WIDTH, 12), nn.Linear(12, HEADS * (self.nope + self.rope))
        self.kv_a, self.kv_b = nn.Linear(WIDTH, 16 + self.rope), nn.Linear(16, HEADS * 2 * self.nope)
        self.q_a_layernorm, self.kv_a_layernorm = nn.RMSNorm(12), nn.RMSNorm(16)
        self.o_proj = nn.Linear(HEADS * self.nope, WIDTH)

    def pieces(self, x):
        q = self.q_b(self.q_a_layernorm(self.q_a(x))).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        latent, k_pe = self.kv_a(x).split([16, self.rope], dim=-1)
        kv = self.kv_b(self.kv_a_layernorm(latent)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        return q, k_pe[:, None], kv[..., : self.nope], kv[..., self.nope :]

    def forward(self, x):
        q, k_pe, k_nope, v = self.pieces(x)
        q_nope, q_pe = q.split([self.nope, self.rope], dim=-1)
        position = torch.arange(x.shape[1])
        q_pe, k_pe = turned(q_pe, position, -2), turned(k_pe, position, -2)
        query_states = k_nope.new_empty(*q.shape)
        query_states[..., : self.nope], query_states[..., self.nope :] = q_nope, q_pe
        key_states = torch.cat([k_nope, k_pe.expand(-1, HEADS, -1, -1)], dim=-1)
        out = F.scaled_dot_product_attention(query_states, key_states, v, is_causal=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


# --- two streams


class Cross(nn.Module):
    """Queries of the text, keys of another sequence at positions of its own (every fourth)."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.kv_proj, self.o_proj = (
            nn.Linear(WIDTH, WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, x, memory):
        q, k, v = of_cross(self, x, memory).values()
        q, k = turned(q, torch.arange(x.shape[1]), -2), turned(k, 4 * torch.arange(memory.shape[1]), -2)
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


def of_cross(attn, x, memory):
    k, v = attn.kv_proj(memory).chunk(2, -1)
    return {
        n: t.unflatten(-1, (HEADS, DIM)).transpose(1, 2) for n, t in zip("qkv", (attn.q_proj(x), k, v), strict=True)
    }


class Translator(nn.Module):
    """Two inputs; returns a dict."""

    def __init__(self):
        super().__init__()
        self.text, self.audio = nn.Embedding(64, WIDTH), nn.Linear(3, WIDTH)
        self.cross = nn.ModuleList(Cross() for _ in range(2))

    def forward(self, input_ids, frames):
        h, memory = self.text(input_ids), self.audio(frames)
        for layer in self.cross:
            h = h + layer(h, memory)
        return {"logits": h @ self.text.weight.T, "hidden": h}


class SelfAndCross(nn.Module):
    """A layer of a decoder behind an encoder: its own tokens turn, those of the encoder do not."""

    def __init__(self):
        super().__init__()
        self.self_attn, self.cross_attn, self.norm = Grouped(), Unturned(), nn.LayerNorm(WIDTH)

    def forward(self, x, memory):
        x = x + self.self_attn(x)
        return x + self.cross_attn(self.norm(x), memory)


class Unturned(Cross):
    def forward(self, x, memory):
        q, k, v = of_cross(self, x, memory).values()
        return self.o_proj(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class EncoderDecoder(Translator):
    def __init__(self):
        super().__init__()
        self.cross = nn.ModuleList(SelfAndCross() for _ in range(2))


# --- linear attention whose features turn


class LinearTurned(Attention):
    """RoFormer, section 3.3: features of q and k turn, and no softmax is taken."""

    def forward(self, x):
        q, k, v = (self.heads(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        norm = q @ k.sum(2, keepdim=True).mT
        q, k = turned(q, torch.arange(x.shape[1]), -2), turned(k, torch.arange(x.shape[1]), -2)
        state = torch.einsum("bhsd,bhse->bhde", k, v)
        return self.o_proj((torch.einsum("bhsd,bhde->bhse", q, state) / norm).transpose(1, 2).flatten(2))


class Retention(Attention):
    """RetNet's: the rotation of xPos without its decay of channels; a decay of scores instead of a softmax."""

    def attend(self, q, k, v):
        apart = (torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])).to(q.dtype)
        decay = torch.where(apart >= 0, 0.9**apart, 0.0)
        return (q @ k.transpose(-1, -2) * decay) @ v

    def rotate(self, q, k):
        index = torch.arange(q.shape[2])
        angle = (1.0 / (10000 ** torch.linspace(0, 1, DIM // 2))).unsqueeze(-1).repeat(1, 2).flatten()
        sin, cos = torch.sin(index[:, None] * angle[None, :]), torch.cos(index[:, None] * angle[None, :])
        shift = lambda x: torch.stack((-x[:, :, :, 1::2], x[:, :, :, ::2]), dim=-1).flatten(-2)  # noqa: E731
        return q * cos + shift(q) * sin, (k * DIM**-0.5) * cos + shift(k * DIM**-0.5) * sin


def turn(**changes):
    fields = {"pairs": halves(DIM), "inv_freq": ladder(10000.0, DIM), "positions": ARANGE}
    return Turn(**(fields | changes))


def apart(q, k, where="layers.{}.attn"):
    return Truth(tuple(Site(where.format(i), q=q, k=k) for i in range(2)))


SIX = turn(positions=range(6))
LATENT = turn(pairs=halves(4, DIM), inv_freq=ladder(10000.0, 4), passing=range(DIM))
RETENTION = {"pairs": neighbours(DIM), "inv_freq": [10000.0 ** (-i / 3) for i in range(4)]}
FRAMES = torch.linspace(-1, 1, 15).view(1, 5, 3)
LAYOUTS = [
    decoder("megatron", MegatronAttention, turn(), TokensFirst),
    decoder("megatron on a batch of two", MegatronAttention, turn(), TokensFirst, (torch.cat([ids(), 63 - ids()]),)),
    decoder("fairseq", FairseqAttention, apart(turn(scale=DIM**-0.5), turn()), TokensFirst),
    decoder("packed documents", Packed, turn(positions=PACKED[0].tolist()), GivesPositions, (ids(), PACKED)),
    decoder("subclass of nn.MultiheadAttention", Multihead, turn()),
    decoder("grouped keys in the fused attention", Grouped, turn()),
    decoder("one key head", OneKey, turn()),
    Case("heads one by one", lambda: Decoder(HeadByHead), (ids(),),
         Truth(tuple(Site(f"layers.{i}.attn.heads.{h}", turn(), turn()) for i in range(2) for h in range(2)))),
    decoder("window by a mask", Windowed, turn()),
    decoder("window by unfold", Unfolded, SIX, inputs=(ids(6),)),
    decoder("queries in chunks", Chunked, turn()),
    decoder("latent keys", Latent, LATENT),
    Case("cross attention", Translator, (ids(), FRAMES),
         apart(turn(), turn(positions=[0, 4, 8, 12, 16]), where="cross.{}")),
    Case("own tokens turn, those of the encoder do not", EncoderDecoder, (ids(), FRAMES),
         Truth(tuple(site for i in range(2) for site in
                     (Site(f"cross.{i}.self_attn", turn(), turn()), Site(f"cross.{i}.cross_attn"))))),
    decoder("linear attention that turns", LinearTurned, turn()),
    decoder("retention", Retention, apart(turn(**RETENTION), turn(**RETENTION, scale=DIM**-0.5))),
]  # fmt: skip
