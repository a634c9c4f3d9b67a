"""What real code does that no lecture shows: other scales, folded heads, wide steps, angles that the data choose."""

import math

import torch
import torch.nn.functional as F
from torch import nn

from eye.layers import SPREAD, Xpos
from eye.layouts import GivesPositions, turned
from eye.skeleton import ARANGE, DIM, HEADS, Attention, Decoder, decoder, ids
from eye.truth import Other, Site, Truth, Turn, halves, ladder, neighbours

INV_FREQ = ladder(10000.0, DIM)


def turn(**changes):
    return Turn(**({"pairs": halves(DIM), "inv_freq": INV_FREQ, "positions": ARANGE} | changes))


def apart(q, k, rotary=True):
    return Truth(tuple(Site(f"layers.{i}.attn", q, k) for i in range(2)), rotary=rotary)


class SlowXpos(Xpos):
    """xPos with its published range, 512 (torchscale): over a few tokens its factors grow by less than a hundredth."""

    spread = 512

    def rotate(self, q, k):
        t = torch.arange(q.shape[2])
        q, k = super().rotate(q, k)
        more = (self.scale ** ((t - len(t) // 2) * (1 / self.spread - 1 / SPREAD))[:, None]).repeat_interleave(2, -1)
        return q * more, k / more


class GivenPositions(Attention):
    def rotate(self, q, k, positions):
        return turned(q, positions[0], -2), turned(k, positions[0], -2)


class WideSteps(Attention):
    """The code itself counts in fours: its spec is not that of positions one after the other."""

    def rotate(self, q, k):
        return tuple(turned(x, 4 * torch.arange(x.shape[2]), -2) for x in (q, k))


class ByHead(Attention):
    """The axis of the heads is taken for that of the tokens: each head stands still, by an angle of its own."""

    def rotate(self, q, k):
        angle = torch.arange(HEADS)[:, None, None] * torch.tensor(INV_FREQ)
        rotated = lambda a, b: torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)  # noqa: E731
        return rotated(*q.chunk(2, -1)), rotated(*k.chunk(2, -1))


class ScaledKeys(Attention):
    """Phi-1's: the softmax scale is written into the keys."""

    def rotate(self, q, k):
        q, k = (turned(x, torch.arange(x.shape[2]), -2) for x in (q, k))
        return q, k * DIM**-0.5

    def attend(self, q, k, v):
        return (q @ k.mT).softmax(-1) @ v


class FoldedQueries(Attention):
    """The heads that share a key are rows of one product."""

    kv_heads = 2

    def rotate(self, q, k):
        return tuple(turned(x, torch.arange(x.shape[2]), -2) for x in (q, k))

    def attend(self, q, k, v):
        rows = q.reshape(q.shape[0], 2, -1, DIM)
        return ((rows @ k.mT / DIM**0.5).softmax(-1) @ v).reshape(q.shape)


class ChosenOffset(Attention):
    """Each token adds to its position a number of its own, which is learned."""

    def __init__(self, layer=0):
        super().__init__()
        self.offset = nn.Linear(32, 1)

    def forward(self, x):
        self.angle = (torch.arange(x.shape[1])[:, None] + self.offset(x)[0]) * torch.tensor(INV_FREQ)
        return super().forward(x)

    def rotate(self, q, k):
        c, s = self.angle.cos(), self.angle.sin()
        return tuple(torch.cat([a * c - b * s, b * c + a * s], -1) for a, b in (q.chunk(2, -1), k.chunk(2, -1)))


class Householder(Attention):
    """PaTH, arXiv:2505.16381: between two tokens lies a product of reflections that the tokens choose."""

    def rotate(self, q, k):
        so_far, turned_q, turned_k = torch.eye(DIM, dtype=q.dtype).expand(*q.shape[:2], DIM, DIM), [], []
        for t in range(q.shape[2]):
            axis = F.normalize(k[:, :, t], dim=-1)
            so_far = so_far - 2 * (so_far @ axis[..., None]) @ axis[..., None, :]
            turned_q.append((so_far.mT @ q[:, :, t, :, None])[..., 0])
            turned_k.append((so_far.mT @ k[:, :, t, :, None])[..., 0])
        return torch.stack(turned_q, 2), torch.stack(turned_k, 2)


class SameAgain(Attention):
    """Results go into memory that holds the same numbers already, of a call before."""

    def rotate(self, q, k):
        if not hasattr(self, "room"):
            self.room = torch.zeros(2, *q.shape)
        angle = torch.arange(q.shape[2])[:, None] * torch.tensor(INV_FREQ)
        for place, x in zip(self.room, (q, k), strict=True):
            a, b = x[..., ::2], x[..., 1::2]
            place[..., ::2] = a * angle.cos() - b * angle.sin()
            place[..., 1::2] = a * angle.sin() + b * angle.cos()
        return self.room[0], self.room[1]


class CalledBefore(Decoder):
    def __init__(self, attention):
        super().__init__(attention)
        with torch.no_grad():
            self(ids())


def slow(sign):
    columns = [
        [((2 * i + 0.4 * DIM) / (1.4 * DIM)) ** (sign * (t - 3) / SlowXpos.spread) for t in ARANGE] for i in range(4)
    ]
    return turn(pairs=neighbours(DIM), scale=columns)


FOURS = torch.tensor([[4 * t for t in ARANGE]])
BY_HEAD = turn(inv_freq=[[h * f for f in INV_FREQ] for h in range(HEADS)], positions=[1] * len(ARANGE))
WILD = [
    decoder("xpos of a wide range", SlowXpos, apart(slow(1), slow(-1), rotary=False)),
    decoder("positions four apart", GivenPositions, turn(positions=FOURS[0].tolist()), GivesPositions, (ids(), FOURS)),
    decoder("four apart in the code", WideSteps, apart(*[turn(positions=FOURS[0].tolist())] * 2, rotary=False)),
    decoder("turned by the number of the head", ByHead, apart(BY_HEAD, BY_HEAD, rotary=False)),
    decoder("softmax scale in the keys", ScaledKeys, apart(turn(), turn(scale=1 / math.sqrt(DIM)))),
    decoder("queries of one key as rows", FoldedQueries, turn()),
    decoder("positions that tokens choose", ChosenOffset,
            apart(*[Other("angles depend on the data")] * 2, rotary=False)),
    decoder("reflections that tokens choose", Householder,
            apart(*[Other("a matrix of the data")] * 2, rotary=False)),
    decoder("the same numbers again", SameAgain, turn(pairs=neighbours(DIM)), CalledBefore),
]  # fmt: skip
