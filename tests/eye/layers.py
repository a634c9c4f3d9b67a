"""What differs from layer to layer, and factors that differ from position to position."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from eye.halves import LlamaAttention, LlamaDecoder, rotate_half
from eye.layouts import turned
from eye.skeleton import ARANGE, DIM, WIDTH, Attention, Block, Decoder, decoder
from eye.truth import Site, Truth, Turn, halves, ladder, neighbours

PLAIN = Turn(halves(DIM), ladder(10000.0, DIM), ARANGE)
LOCAL = Turn(halves(DIM), ladder(100.0, DIM), ARANGE)


def at(layer, q=None, k=None):
    return Site(f"layers.{layer}.attn", q=q, k=k)


class LocalAndGlobal(Attention):
    """Gemma 3's: layers that see a window have a base of their own."""

    def rotate(self, q, k):
        base = 10000.0 if self.layer % 3 == 2 else 100.0
        return tuple(turned(x, torch.arange(x.shape[2]), -2, base) for x in (q, k))

    def attend(self, q, k, v):
        mask = torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
        return F.scaled_dot_product_attention(q, k, v, mask if self.layer % 3 == 2 else mask.triu(-2))


class SomeWithout(LlamaAttention):
    """SmolLM3's: every fourth layer has no positions."""

    def rotate(self, q, k, cos, sin):
        return (q, k) if self.layer % 4 == 3 else super().rotate(q, k, cos, sin)


class WithLayers(LlamaDecoder):
    count = 4

    def __init__(self, attention):
        super().__init__(attention)
        self.layers.extend(Block(attention(i)) for i in range(2, self.count))


class Convolution(nn.Module):
    """A layer without attention (LFM2, Jamba): a convolution that looks back."""

    def __init__(self):
        super().__init__()
        self.conv, self.gate = nn.Conv1d(WIDTH, WIDTH, 3, groups=WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x, *positional):
        return self.conv(F.pad(x.mT, (2, 0))).mT * self.gate(x).sigmoid()


def hybrid(layer):
    return LlamaAttention(layer) if layer % 2 else Convolution()


class ThreeLayers(Decoder):
    def __init__(self, attention):
        super().__init__(attention, layers=3)


# --- factors of positions

SPREAD = 16


class Xpos(Attention):
    """xPos, arXiv:2212.10554: queries grow and keys shrink with the position, each pair at its own rate."""

    def __init__(self, layer=0):
        super().__init__()
        self.register_buffer("scale", (torch.arange(0, DIM, 2) + 0.4 * DIM) / (1.4 * DIM))

    def rotate(self, q, k):
        t = torch.arange(q.shape[2])
        angle = (t[:, None] * 10000.0 ** (-torch.arange(0, DIM, 2) / DIM)).repeat_interleave(2, -1)
        power = ((t - len(t) // 2) / SPREAD)[:, None]
        scale = (self.scale**power).repeat_interleave(2, -1)
        half = lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)  # noqa: E731
        return (q * angle.cos() + half(q) * angle.sin()) * scale, (k * angle.cos() + half(k) * angle.sin()) / scale


class Temperature(LlamaAttention):
    """Llama 4's and Ministral 3's: queries grow with the logarithm of the position."""

    kv_heads = 4

    def rotate(self, q, k, cos, sin):
        q, k = q * cos[:, None] + rotate_half(q) * sin[:, None], k * cos[:, None] + rotate_half(k) * sin[:, None]
        growth = torch.log(torch.floor((torch.arange(q.shape[2]).float() + 1) / 2) + 1) * 0.1 + 1
        return (q * growth[:, None]).to(q.dtype), k

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class KeysLouder(Attention):
    """A factor on the keys' rotating channels alone, the others pass as they are."""

    def rotate(self, q, k):
        q, k = (torch.cat([turned(x[..., :4], torch.arange(x.shape[2]), -2), x[..., 4:]], -1) for x in (q, k))
        return q, torch.cat([1.5 * k[..., :4], k[..., 4:]], -1)


def zeta(t):
    return [((2 * i + 0.4 * DIM) / (1.4 * DIM)) ** (t / SPREAD) for i in range(DIM // 2)]


def xpos(sign):
    columns = [zeta(sign * (t - len(ARANGE) // 2)) for t in ARANGE]
    scale = [[column[i] for column in columns] for i in range(DIM // 2)]
    return Turn(neighbours(DIM), ladder(10000.0, DIM), ARANGE, scale=scale)


GROWTH = [[math.log((t + 1) // 2 + 1) * 0.1 + 1 for t in ARANGE]] * (DIM // 2)
WARM = Turn(halves(DIM), ladder(10000.0, DIM), ARANGE, scale=GROWTH)
PART = {"pairs": halves(4), "inv_freq": ladder(10000.0, 4), "positions": ARANGE, "passing": (4, 5, 6, 7)}
LAYERS = [
    decoder("bases of local and global layers", LocalAndGlobal,
            Truth((at(0, LOCAL, LOCAL), at(1, LOCAL, LOCAL), at(2, PLAIN, PLAIN))), ThreeLayers),
    decoder("every fourth layer without", SomeWithout,
            Truth((*(at(i, PLAIN, PLAIN) for i in range(3)), at(3))), WithLayers),
    decoder("attention in every second layer", hybrid, Truth((at(1, PLAIN, PLAIN), at(3, PLAIN, PLAIN))), WithLayers),
    decoder("xpos", Xpos, Truth(tuple(at(i, xpos(1), xpos(-1)) for i in range(2)), rotary=False)),
    decoder("queries that grow", Temperature, Truth(tuple(at(i, WARM, PLAIN) for i in range(2))), LlamaDecoder),
    decoder("a factor on the keys", KeysLouder,
            Truth(tuple(at(i, Turn(**PART), Turn(**PART, scale=1.5)) for i in range(2)), rotary=False)),
]  # fmt: skip
