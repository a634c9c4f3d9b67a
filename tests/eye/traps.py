"""Look-alikes that are no rotation, and rotations that are wrong: the eye may not call any of them right."""

import math

import torch
from torch import nn

from eye.layouts import turned
from eye.skeleton import ARANGE, DIM, HEADS, Attention, decoder
from eye.truth import Other, Site, Truth, Turn, halves, ladder
from eye.without import Hadamard

INV_FREQ = ladder(10000.0, DIM)
PLAIN = Turn(halves(DIM), INV_FREQ, ARANGE)


def turn(**changes):
    fields = {"pairs": halves(DIM), "inv_freq": INV_FREQ, "positions": ARANGE}
    return Turn(**(fields | changes))


def trap(name, attention, q, k, **options):
    """No `ModelRotary` says such a thing."""
    return decoder(
        name, attention, Truth(tuple(Site(f"layers.{i}.attn", q, k) for i in range(2)), rotary=False), **options
    )


def angles(x, base=10000.0):
    return torch.arange(x.shape[2])[:, None] * base ** (-torch.arange(0, DIM, 2) / DIM)


# --- no rotation


class TwoAngles(Attention):
    """V-JEPA 2's: the members of a pair turn by different angles (tables repeated in the other layout)."""

    def rotate(self, q, k):
        emb = torch.cat([angles(q), angles(q)], -1)
        half = lambda x: torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)  # noqa: E731
        return tuple(x * emb.cos() + half(x) * emb.sin() for x in (q, k))


class Shear(Attention):
    """(a - b sin, b): a shear of each pair."""

    def rotate(self, q, k):
        s = angles(q).sin()
        return tuple(torch.cat([x[..., :4] - x[..., 4:] * s, x[..., 4:]], -1) for x in (q, k))


class Reflection(Attention):
    """One sign wrong: (a cos + b sin, a sin - b cos), orthogonal, with determinant -1."""

    def rotate(self, q, k):
        c, s = angles(q).cos(), angles(q).sin()
        return tuple(torch.cat([a * c + b * s, a * s - b * c], -1) for a, b in (q.chunk(2, -1), k.chunk(2, -1)))


class Selective(Attention):
    """The angle grows by an amount that each token chooses (selective RoPE, CoPE, Mamba-3)."""

    def __init__(self, layer=0):
        super().__init__()
        self.step = nn.Linear(DIM, DIM // 2)

    def angle(self, q):
        return self.step(q).sigmoid().cumsum(2)

    def rotate(self, q, k):
        angle = self.angle(q)
        turn = lambda a, b: torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)  # noqa: E731
        return turn(*q.chunk(2, -1)), turn(*k.chunk(2, -1))


class TokensRoll(Attention):
    """Turns, then hands each token the key of the one before (a cache that is off by one)."""

    def rotate(self, q, k):
        q, k = (turned(x, torch.arange(x.shape[2]), -2) for x in (q, k))
        return q, k.roll(1, dims=2)


class InOtherPlanes(Attention):
    """The exponential of a dense skew matrix times the position (LieRE): its planes are no pairs of channels."""

    def __init__(self, layer=0):
        super().__init__()
        self.generator = nn.Parameter(torch.randn(DIM, DIM))

    def rotate(self, q, k):
        skew = self.generator.triu(1) - self.generator.triu(1).T
        matrices = torch.matrix_exp(torch.arange(q.shape[2])[:, None, None] * skew)
        return tuple(torch.einsum("sij,bhsj->bhsi", matrices, x) for x in (q, k))


# --- rotations, and wrong


class QueriesOnly(Attention):
    def rotate(self, q, k):
        return turned(q, torch.arange(q.shape[2]), -2), k


class OffByOne(Attention):
    """Queries are turned at the next position."""

    def rotate(self, q, k):
        return turned(q, torch.arange(1, q.shape[2] + 1), -2), turned(k, torch.arange(k.shape[2]), -2)


class HeadsExchanged(Attention):
    """Each head has frequencies of its own, and two heads of the queries have changed places."""

    of_heads = tuple(tuple(f / (h + 1) for f in INV_FREQ) for h in range(HEADS))
    order = (1, 0, 2, 3)

    def rotate(self, q, k):
        angle = torch.arange(q.shape[2])[:, None] * torch.tensor(self.of_heads)[:, None]
        turn = lambda a, b: torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)  # noqa: E731
        return turn(*q.chunk(2, -1))[:, list(self.order)], turn(*k.chunk(2, -1))


class Swapped(Attention):
    """cos and sin are exchanged."""

    def rotate(self, q, k):
        emb = torch.cat([angles(q)] * 2, -1)
        cos, sin = emb.sin(), emb.cos()
        half = lambda x: torch.cat((-x[..., 4:], x[..., :4]), -1)  # noqa: E731
        return q * cos + half(q) * sin, k * cos + half(k) * sin


class OnePairLouder(Attention):
    def rotate(self, q, k):
        q, k = (turned(x, torch.arange(x.shape[2]), -2) for x in (q, k))
        return q, k * torch.tensor([1.0, 2.0, 1.0, 1.0] * 2)


class KeysDoubled(Attention):
    def rotate(self, q, k):
        q, k = (turned(x, torch.arange(x.shape[2]), -2) for x in (q, k))
        return q, k * 2


class Twice(Attention):
    """Rotated in the attention and once more by its caller: twice the angle."""

    def rotate(self, q, k):
        for _ in range(2):
            q, k = (turned(x, torch.arange(x.shape[2]), -2) for x in (q, k))
        return q, k


class ThenHadamard(Hadamard):
    """Turned, then times one orthogonal matrix for both (keys that are quantised): scores stay as they were."""

    def rotate(self, q, k):
        return super().rotate(*(turned(x, torch.arange(x.shape[2]), -2) for x in (q, k)))


class OtherLayoutOfKeys(Attention):
    """Keys by neighbours, queries by halves."""

    def rotate(self, q, k):
        c, s = angles(k).cos(), angles(k).sin()
        k = torch.stack([k[..., ::2] * c - k[..., 1::2] * s, k[..., ::2] * s + k[..., 1::2] * c], -1).flatten(-2)
        return turned(q, torch.arange(q.shape[2]), -2), k


class KeysBackwards(Attention):
    def rotate(self, q, k):
        return turned(q, torch.arange(q.shape[2]), -2), turned(k, -torch.arange(k.shape[2]), -2)


class FromTheEnd(Attention):
    """Positions count from the last token: a length that changes moves every key."""

    def rotate(self, q, k):
        back = torch.arange(q.shape[2]).flip(0)
        return turned(q, back, -2), turned(k, back, -2)


class Wrapped(Attention):
    """Positions start again at 4: a table that is too short is read modulo its length."""

    def rotate(self, q, k):
        return tuple(turned(x, torch.arange(x.shape[2]) % 4, -2) for x in (q, k))


OF_HEADS = [list(h) for h in HeadsExchanged.of_heads]
SWAPPED = turn(inv_freq=[-f for f in INV_FREQ], phase=[math.pi / 2] * 4)
NEIGHBOURS = turn(pairs=[(0, 1), (2, 3), (4, 5), (6, 7)])
TRAPS = [
    trap("two angles in a pair", TwoAngles, *[Other("the members of a pair turn apart")] * 2),
    trap("shear", Shear, *[Other("a shear")] * 2),
    trap("reflection", Reflection, *[Other("a reflection")] * 2),
    trap("in other planes", InOtherPlanes, *[Other("its planes are no pairs of channels")] * 2),
    trap("angles of the data", Selective, *[Other("angles depend on the data")] * 2),
    trap(
        "keys of the token before",
        TokensRoll,
        PLAIN,
        turn(positions=[ARANGE[-1], *ARANGE[:-1]]),
    ),
    trap("queries alone", QueriesOnly, PLAIN, None),
    trap("queries off by one", OffByOne, turn(positions=[p + 1 for p in ARANGE]), PLAIN),
    trap(
        "heads exchanged",
        HeadsExchanged,
        turn(inv_freq=[OF_HEADS[h] for h in HeadsExchanged.order]),
        turn(inv_freq=OF_HEADS),
    ),
    trap("cos and sin exchanged", Swapped, SWAPPED, SWAPPED),
    trap("one pair louder", OnePairLouder, PLAIN, turn(scale=[1.0, 2.0, 1.0, 1.0])),
    trap("keys doubled", KeysDoubled, PLAIN, turn(scale=2.0)),
    decoder("turned twice", Twice, turn(inv_freq=[2 * f for f in INV_FREQ])),
    decoder("turned, then hadamard", ThenHadamard, turn()),
    trap("keys by neighbours", OtherLayoutOfKeys, PLAIN, NEIGHBOURS),
    trap("keys backwards", KeysBackwards, PLAIN, turn(inv_freq=[-f for f in INV_FREQ])),
    trap("from the end", FromTheEnd, *[turn(positions=ARANGE[::-1])] * 2),
    trap("positions that wrap", Wrapped, *[turn(positions=[p % 4 for p in ARANGE])] * 2),
]
