"""Rotations by halves: rotate_half, chunk and cat, and tables of every origin."""

import math
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from eye.skeleton import ARANGE, DIM, HEADS, WIDTH, Attention, Decoder, both, decoder, ids
from eye.truth import Truth, Turn, halves, ladder

PLAIN = Turn(halves(DIM), ladder(10000.0, DIM), ARANGE)


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


# --- the common one: a module of the model forms cos and sin from position_ids


class RotaryEmbedding(nn.Module):
    def __init__(self, dim, base=10000.0, scaling=1.0):
        super().__init__()
        self.scaling = scaling
        inv_freq = 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.int64).float() / dim))
        self.register_buffer("inv_freq", inv_freq, persistent=False)

    @torch.no_grad()
    def forward(self, x, position_ids):
        inv_freq_expanded = self.inv_freq[None, :, None].float().expand(position_ids.shape[0], -1, 1)
        freqs = (inv_freq_expanded @ position_ids[:, None, :].float()).transpose(1, 2)
        emb = torch.cat((freqs, freqs), dim=-1)
        return (emb.cos() * self.scaling).to(x.dtype), (emb.sin() * self.scaling).to(x.dtype)


class LlamaDecoder(Decoder):
    first, base, scaling, step = 0, 10000.0, 1.0, 1

    def __init__(self, attention):
        super().__init__(attention)
        self.rotary_emb = RotaryEmbedding(DIM, self.base, self.scaling)

    def positional(self, h, position_ids):
        if position_ids is None:
            position_ids = torch.arange(self.first, self.first + h.shape[1], device=h.device)[None]
        return self.rotary_emb(h, position_ids / self.step)


class LlamaAttention(Attention):
    """Two key heads, repeated after the rotation; the softmax by hand."""

    kv_heads = 2

    def rotate(self, q, k, cos, sin):
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin

    def attend(self, q, k, v):
        k, v = (x[:, :, None].expand(-1, -1, 2, -1, -1).reshape(q.shape) for x in (k, v))
        scores = torch.matmul(q, k.transpose(2, 3)) / DIM**0.5
        scores = scores + torch.full(scores.shape[-2:], float("-inf"), dtype=scores.dtype).triu(1)
        return torch.matmul(scores.softmax(-1, dtype=torch.float32).to(v.dtype), v)


class LlamaFromOne(LlamaDecoder):
    first = 1


class LlamaInterpolated(LlamaDecoder):
    step = 4


class LlamaNtk(LlamaDecoder):
    base = 10000.0 * 4 ** (DIM / (DIM - 2))


class LlamaYarnFactor(LlamaDecoder):
    scaling = 0.1 * math.log(8.0) + 1  # YaRN, arXiv:2309.00071, section 3.4


class WholePositions(LlamaDecoder):
    """Takes the tables of the llama decoder without passing position_ids through a division."""

    def positional(self, h, position_ids):
        return self.rotary_emb(h, position_ids)


OFFSET = torch.tensor([[3, 4, 5, 9, 10, 11, 40]])


# --- fused qkv, a part of the channels, a cache of 2048 positions cut to the length


class NeoxAttention(nn.Module):
    def __init__(self, layer=0):
        super().__init__()
        self.query_key_value, self.o_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.rotary_ndims = DIM // 2
        inv_freq = 1.0 / (10000 ** (torch.arange(0, self.rotary_ndims, 2).float() / self.rotary_ndims))
        freqs = torch.einsum("i,j->ij", torch.arange(2048).float(), inv_freq)
        emb = torch.cat((freqs, freqs), dim=-1)
        self.register_buffer("cos_cached", emb.cos()[None, None])
        self.register_buffer("sin_cached", emb.sin()[None, None])

    def forward(self, x):
        batch, seq, _ = x.shape
        qkv = self.query_key_value(x).view(batch, seq, HEADS, 3 * DIM)
        q, k, v = (part.permute(0, 2, 1, 3) for part in qkv.split(DIM, dim=-1))
        cos, sin = self.cos_cached[:, :, :seq], self.sin_cached[:, :, :seq]
        n = self.rotary_ndims
        q_rot, q_pass, k_rot, k_pass = q[..., :n], q[..., n:], k[..., :n], k[..., n:]
        q = torch.cat((q_rot * cos + rotate_half(q_rot) * sin, q_pass), -1)
        k = torch.cat((k_rot * cos + rotate_half(k_rot) * sin, k_pass), -1)
        scores = torch.baddbmm(  # Megatron's way: no separate scaling
            torch.zeros(batch * HEADS, seq, seq, dtype=q.dtype),
            q.reshape(batch * HEADS, seq, DIM),
            k.reshape(batch * HEADS, seq, DIM).transpose(1, 2),
            beta=0.0,
            alpha=DIM**-0.5,
        ).view(batch, HEADS, seq, seq)
        scores = scores.masked_fill(torch.ones(seq, seq, dtype=torch.bool).triu(1), torch.finfo(q.dtype).min)
        return self.o_proj((scores.softmax(-1) @ v).permute(0, 2, 1, 3).reshape(batch, seq, WIDTH))


# --- norms of each head before the rotation, keys repeated before it


class QwenAttention(Attention):
    kv_heads = 2

    def __init__(self, layer=0):
        super().__init__()
        self.q_norm, self.k_norm = nn.RMSNorm(DIM), nn.RMSNorm(DIM)

    def rotate(self, q, k, cos, sin):
        q, k = self.q_norm(q), self.k_norm(k).repeat_interleave(2, dim=1)
        return q * cos[:, None] + rotate_half(q) * sin[:, None], k * cos[:, None] + rotate_half(k) * sin[:, None]

    def attend(self, q, k, v):
        return super().attend(q, k, v.repeat_interleave(2, dim=1))


# --- tables of other origins


class TableAttention(Attention):
    """A buffer of the dtype that `dtype` names, cut to the length."""

    dtype, formed_in = torch.float32, torch.float32

    def __init__(self, layer=0):
        super().__init__()
        t = torch.arange(2048, dtype=self.formed_in)
        freqs = torch.outer(t, 10000.0 ** (-torch.arange(0, DIM, 2, dtype=self.formed_in) / DIM))
        self.cos, self.sin = freqs.cos().to(self.dtype), freqs.sin().to(self.dtype)  # attributes, not buffers

    def rotate(self, q, k):
        cos, sin = (t[: q.shape[2]].repeat(1, 2).to(q.dtype) for t in (self.cos, self.sin))
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


class Bfloat16Tables(TableAttention):
    dtype = torch.bfloat16


class Float64Tables(TableAttention):
    dtype = formed_in = torch.float64


class EmbeddedTables(Attention):
    """cos and sin side by side in the weight of an embedding (RoFormer, GPT-J in its first form)."""

    def __init__(self, layer=0):
        super().__init__()
        freqs = torch.outer(torch.arange(64.0), 10000.0 ** (-torch.arange(0, DIM, 2) / DIM))
        self.table = nn.Embedding.from_pretrained(torch.cat([freqs.sin(), freqs.cos()], dim=-1))

    def rotate(self, q, k):
        sin, cos = self.table(torch.arange(q.shape[2])).chunk(2, dim=-1)
        out = []
        for x in (q, k):
            a, b = x.chunk(2, dim=-1)
            out.append(torch.cat([a * cos - b * sin, b * cos + a * sin], dim=-1))
        return out


class GrowingTables(Attention):
    """A call that is longer than all before it forms the tables again."""

    def __init__(self, layer=0):
        super().__init__()
        self.max_seq_len_cached = 0
        self.grow(4)

    def grow(self, length):
        freqs = torch.outer(torch.arange(length).float(), 1.0 / 10000 ** (torch.arange(0, DIM, 2).float() / DIM))
        self.max_seq_len_cached, self.freqs = length, freqs

    def rotate(self, q, k):
        if q.size(-2) > self.max_seq_len_cached:
            self.grow(q.size(-2))
        angle = torch.cat([self.freqs, self.freqs], -1)[: q.size(-2)].type_as(q)
        return tuple(x * angle.cos() + rotate_half(x) * angle.sin() for x in (q, k))


# --- norms after the rotation


class ReversedAttention(Attention):
    """nanochat's: backwards, then divided by the root mean square; [batch, tokens, heads, channels] until the end."""

    def __init__(self, layer=0):
        super().__init__()
        freqs = torch.outer(torch.arange(128.0), 1.0 / 10000 ** (torch.arange(0, DIM, 2) / DIM))
        self.register_buffer("cos", freqs.cos()[None, :, None, :], persistent=False)
        self.register_buffer("sin", freqs.sin()[None, :, None, :], persistent=False)

    def forward(self, x):
        B, T, _ = x.size()
        q, k, v = (proj(x).view(B, T, HEADS, DIM) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = (self.turned(t, self.cos[:, :T], self.sin[:, :T]) for t in (q, k))
        q, k = F.rms_norm(q, (DIM,)), F.rms_norm(k, (DIM,))
        y = F.scaled_dot_product_attention(*(t.transpose(1, 2) for t in (q, k, v)), is_causal=True)
        return self.o_proj(y.transpose(1, 2).contiguous().view(B, T, -1))

    @staticmethod
    def turned(x, cos, sin):
        d = x.shape[3] // 2
        x1, x2 = x[..., :d], x[..., d:]
        return torch.cat([x1 * cos + x2 * sin, x1 * (-sin) + x2 * cos], 3)


class WeightedNormAfter(TableAttention):
    """Hunyuan's: a norm with a weight for each channel after the rotation."""

    def __init__(self, layer=0):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, DIM))

    def normed(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight

    def rotate(self, q, k):
        return tuple(self.normed(x) for x in super().rotate(q, k))


class Cosine(TableAttention):
    """Scores are cosines: both sides have length one after the rotation, and a trained temperature."""

    def __init__(self, layer=0):
        super().__init__()
        self.temperature = nn.Parameter(torch.tensor(5.0))

    def rotate(self, q, k):
        q, k = super().rotate(q, k)
        return F.normalize(q, dim=-1), F.normalize(k, dim=-1)

    def attend(self, q, k, v):
        return ((q @ k.transpose(-2, -1)) * self.temperature).softmax(dim=-1) @ v


# --- which channels


class Trailing(Attention):
    """The last four channels of eight."""

    first, width = 4, 4

    def rotate(self, q, k):
        inv_freq = 10000.0 ** (-torch.arange(0, self.width, 2) / self.width)
        angles = torch.arange(q.shape[-2])[:, None] * inv_freq
        out = []
        for x in (q, k):
            before, a, b, after = x.tensor_split(
                [self.first, self.first + self.width // 2, self.first + self.width], -1
            )
            turned = [a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()]
            out.append(torch.cat([before, *turned, after], -1))
        return out


class Middle(Trailing):
    first = 2


# --- factors


class ScaledBefore(TableAttention):
    def rotate(self, q, k):
        return super().rotate(q * 0.25, k)


class ScaledAfter(TableAttention):
    def rotate(self, q, k):
        q, k = super().rotate(q, k)
        return q * DIM**-0.5, k

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, scale=1.0)


# --- how it is run


@torch.jit.script
def scripted(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin


class Scripted(TableAttention):
    def rotate(self, q, k):
        cos, sin = (torch.cat((t, t), -1)[: q.shape[2]] for t in (self.cos, self.sin))
        return scripted(q, cos, sin), scripted(k, cos, sin)


class Checkpointed(LlamaDecoder):
    """Every layer under torch.utils.checkpoint, of the kind that enters autograd anew."""

    def forward(self, input_ids, position_ids=None):
        h = self.embed(input_ids)
        positional = self.positional(h, position_ids)
        for layer in self.layers:
            h = checkpoint(layer, h, *positional, use_reentrant=False)
        return self.head(self.norm(h))


class Autocast(LlamaDecoder):
    def forward(self, input_ids, position_ids=None):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return super().forward(input_ids, position_ids)


class InBfloat16(LlamaDecoder):
    def __init__(self, attention):
        super().__init__(attention)
        self.to(torch.bfloat16)

    def positional(self, h, position_ids):
        return self.rotary_emb.float()(h, torch.arange(h.shape[1])[None])


@dataclass
class Output:
    loss: torch.Tensor | None
    logits: torch.Tensor


class Dataclassed(Decoder):
    def forward(self, input_ids):
        return Output(None, super().forward(input_ids))


class Tupled(LlamaDecoder):
    """Returns what some libraries return: a tuple with the hidden states of all layers."""

    def forward(self, input_ids, position_ids=None):
        h, every = self.embed(input_ids), []
        positional = self.positional(h, position_ids)
        for layer in self.layers:
            every.append(h := layer(h, *positional))
        return self.head(self.norm(h)), tuple(every), None


def turn(**changes):
    fields = {"pairs": halves(DIM), "inv_freq": ladder(10000.0, DIM), "positions": ARANGE}
    return Turn(**(fields | changes))


def scaled_queries(factor):
    return Truth(tuple(replace(site, q=turn(scale=factor)) for site in both(PLAIN)))


FACTOR = 1.2079441541679836  # 0.1 ln 8 + 1
HALVES = [
    decoder("llama", LlamaAttention, PLAIN, LlamaDecoder),
    decoder("llama at listed positions", LlamaAttention, turn(positions=OFFSET[0].tolist()), WholePositions,
            (ids(), OFFSET)),
    decoder("llama on a batch of two", LlamaAttention, PLAIN, LlamaDecoder, (torch.cat([ids(), 63 - ids()]),)),
    decoder("llama from position 1", LlamaAttention, turn(positions=[p + 1 for p in ARANGE]), LlamaFromOne),
    decoder("positions divided by 4", LlamaAttention, turn(positions=[p / 4 for p in ARANGE]), LlamaInterpolated),
    decoder("ntk base", LlamaAttention, turn(inv_freq=ladder(10000.0 * 4 ** (4 / 3), DIM)), LlamaNtk),
    decoder("yarn factor in the tables", LlamaAttention, turn(scale=FACTOR), LlamaYarnFactor),
    decoder("neox", NeoxAttention, turn(pairs=halves(4), inv_freq=ladder(10000.0, 4), passing=(4, 5, 6, 7))),
    decoder("qwen3", QwenAttention, PLAIN, LlamaDecoder),
    decoder("table as an attribute", TableAttention, PLAIN),
    decoder("tables in bfloat16", Bfloat16Tables, PLAIN, tolerance=1e-2),
    decoder("tables in float64", Float64Tables, PLAIN),
    decoder("tables in an embedding", EmbeddedTables, PLAIN),
    decoder("tables that grow", GrowingTables, PLAIN),
    decoder("nanochat", ReversedAttention, turn(inv_freq=[-f for f in ladder(10000.0, DIM)])),
    decoder("weighted norm after", WeightedNormAfter, turn()),
    decoder("cosines of what turned", Cosine, turn(), Dataclassed),
    decoder("last channels", Trailing, turn(pairs=halves(4, 4), inv_freq=ladder(10000.0, 4), passing=range(4))),
    decoder("middle channels", Middle,
            Truth(both(turn(pairs=halves(4, 2), inv_freq=ladder(10000.0, 4), passing=(0, 1, 6, 7))), rotary=False)),
    decoder("queries scaled before", ScaledBefore, scaled_queries(0.25)),
    decoder("queries scaled after", ScaledAfter, scaled_queries(DIM**-0.5)),
    decoder("scripted", Scripted, PLAIN),
    decoder("checkpointed", LlamaAttention, PLAIN, Checkpointed),
    decoder("autocast", LlamaAttention, PLAIN, Autocast, tolerance=3e-2),
    decoder("bfloat16", LlamaAttention, PLAIN, InBfloat16, tolerance=3e-2),
    decoder("returns a tuple", LlamaAttention, PLAIN, Tupled),
]  # fmt: skip
