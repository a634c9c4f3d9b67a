"""Models in which no position turns anything."""

import torch
import torch.nn.functional as F
from torch import nn

from eye.skeleton import ARANGE, DIM, HEADS, WIDTH, Attention, Decoder, decoder, ids
from eye.truth import Case, Other, Site, Truth, Turn, halves

NOTHING = Truth((Site("layers.0.attn"), Site("layers.1.attn")), rotary=False)


class Alibi(Attention):
    """Press et al., arXiv:2108.12409: the distance times a slope of each head."""

    def attend(self, q, k, v):
        apart = torch.arange(q.shape[2]) - torch.arange(q.shape[2])[:, None]
        slopes = 2.0 ** (-8 / HEADS * torch.arange(1, HEADS + 1))
        bias = (slopes[:, None, None] * apart).masked_fill(apart > 0, -torch.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))


class T5(Attention):
    """A learned bias for each bucket of distances; no scaling of scores."""

    def __init__(self, layer=0):
        super().__init__()
        self.relative_attention_bias = nn.Embedding(32, HEADS)

    def attend(self, q, k, v):
        buckets = (torch.arange(k.shape[2]) - torch.arange(q.shape[2])[:, None]).clamp(-15, 16) + 15
        scores = torch.matmul(q, k.transpose(3, 2)) + self.relative_attention_bias(buckets).permute(2, 0, 1)[None]
        return torch.matmul(scores.softmax(-1), v)


class Learned(Decoder):
    """GPT-2's: positions are rows of a second embedding."""

    def __init__(self, attention):
        super().__init__(attention)
        self.wpe = nn.Embedding(32, WIDTH)

    def forward(self, input_ids):
        h = self.embed(input_ids) + self.wpe(torch.arange(input_ids.shape[1]))
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h))


class Sinusoidal(Decoder):
    """Vaswani et al.: sines and cosines are added to the embedding."""

    def forward(self, input_ids):
        h = self.embed(input_ids)
        angle = torch.arange(h.shape[1])[:, None] * 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        h = h + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h))


class TurnedEmbedding(Decoder):
    """Rotates the hidden states before any projection, which mixes the pairs: no head of q or k turns."""

    def forward(self, input_ids):
        h = self.embed(input_ids)
        angle = torch.arange(h.shape[1])[:, None] * 10000.0 ** (-torch.arange(0, WIDTH, 2) / WIDTH)
        a, b = h.chunk(2, -1)
        h = torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)
        for layer in self.layers:
            h = layer(h)
        return self.head(self.norm(h))


class Linear(Attention):
    """Katharopoulos et al.: features, a sum of outer products, no positions."""

    def forward(self, x):
        q, k, v = (self.heads(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = F.elu(q) + 1, F.elu(k) + 1
        out = torch.einsum("bhsd,bhde->bhse", q, torch.einsum("bhsd,bhse->bhde", k, v))
        out = out / (q * k.sum(2, keepdim=True)).sum(-1, keepdim=True)
        return self.o_proj(out.transpose(1, 2).flatten(2))


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.net = (
            nn.Embedding(64, WIDTH),
            nn.Sequential(nn.Linear(WIDTH, 48), nn.ReLU(), nn.Linear(48, 64)),
        )

    def forward(self, input_ids):
        return self.net(self.embed(input_ids))


class Hadamard(Attention):
    """QuaRot's: q and k times one orthogonal matrix, the same at every position."""

    signs = (1.0, -1.0, 1.0, 1.0, -1.0, 1.0, -1.0, -1.0)

    def __init__(self, layer=0):
        super().__init__()
        two = torch.tensor([[1.0, 1.0], [1.0, -1.0]])
        self.register_buffer(
            "matrix", torch.tensor(self.signs)[:, None] * torch.kron(two, torch.kron(two, two)) / DIM**0.5
        )

    def rotate(self, q, k):
        return q @ self.matrix, k @ self.matrix


class ConstantPlanes(Attention):
    """A rotation of pairs by the same angles at every position, as a rotated quantiser has it."""

    phases = (0.5, 1.0, 1.5, 2.0)

    def rotate(self, q, k):
        c, s = torch.tensor(self.phases).cos(), torch.tensor(self.phases).sin()
        turn = lambda a, b: torch.cat([a * c - b * s, a * s + b * c], -1)  # noqa: E731
        return turn(*q.chunk(2, -1)), turn(*k.chunk(2, -1))


class ConvolvedKeys(Attention):
    """A short causal convolution of each channel of q and k (Mamba's and its kin's)."""

    def __init__(self, layer=0):
        super().__init__()
        self.conv = nn.Conv1d(WIDTH, WIDTH, 4, groups=WIDTH, padding=3)

    def convolved(self, x):
        flat = x.transpose(1, 2).flatten(2)
        return self.heads(self.conv(flat.mT)[..., : x.shape[2]].mT)

    def rotate(self, q, k):
        return self.convolved(q), self.convolved(k)


class Undone(Attention):
    """Turns and turns back: nothing remains."""

    def rotate(self, q, k):
        angle = torch.arange(q.shape[2])[:, None] * 100.0 ** (-torch.arange(0, DIM, 2) / DIM)
        z = lambda x, by: torch.view_as_complex(x.contiguous().unflatten(-1, (-1, 2))) * torch.exp(1j * by)  # noqa: E731
        there_and_back = lambda x: torch.view_as_real(z(x, angle) * torch.exp(-1j * angle)).flatten(-2)  # noqa: E731
        return there_and_back(q).to(q.dtype), there_and_back(k).to(k.dtype)


def everywhere(site):
    return Truth(tuple(Site(f"layers.{i}.attn", site, site) for i in range(2)), rotary=False)


STANDING = Turn(halves(DIM), [0.0] * 4, ARANGE, phase=ConstantPlanes.phases)
WITHOUT = [
    decoder("alibi", Alibi, NOTHING),
    decoder("t5 bias", T5, NOTHING),
    decoder("learned positions", Attention, NOTHING, Learned),
    decoder("sinusoidal", Attention, NOTHING, Sinusoidal),
    decoder("hidden states turned", Attention, NOTHING, TurnedEmbedding),
    decoder("linear attention", Linear, NOTHING),
    Case("no attention", Perceptron, (ids(),), Truth((), rotary=False)),
    decoder("hadamard", Hadamard, everywhere(Other("a dense matrix, the same everywhere"))),
    decoder("standing planes", ConstantPlanes, everywhere(STANDING)),
    decoder("convolved keys", ConvolvedKeys, everywhere(Other("mixes tokens"))),
    decoder("turned and turned back", Undone, NOTHING),
]  # fmt: skip
