"""What many models of the zoo share around their attention: an embedding, two layers, a head."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from eye.truth import Case, Other, Site, Truth, Turn

TOKENS = 7  # no other size of these models is 7, so that no axis can be taken for that of the tokens
HEADS, DIM = 4, 8
WIDTH = HEADS * DIM
ARANGE = list(range(TOKENS))


class Block(nn.Module):
    def __init__(self, attn: nn.Module) -> None:
        super().__init__()
        self.attn, self.norm1, self.norm2 = attn, nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 48), nn.GELU(), nn.Linear(48, WIDTH))

    def forward(self, h, *positional):
        h = h + self.attn(self.norm1(h), *positional)
        return h + self.mlp(self.norm2(h))


class Decoder(nn.Module):
    """``attention(layer)`` makes the attention of a layer; `positional` gives what a layer gets beside its input."""

    def __init__(self, attention: Callable[[int], nn.Module], layers: int = 2) -> None:
        super().__init__()
        self.embed = nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList(Block(attention(i)) for i in range(layers))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64, bias=False)

    def positional(self, h, position_ids) -> tuple:
        return ()

    def forward(self, input_ids, position_ids=None):
        h = self.embed(input_ids)
        positional = self.positional(h, position_ids)
        for layer in self.layers:
            h = layer(h, *positional)
        return self.head(self.norm(h))


class Attention(nn.Module):
    """Separate projections and a fused attention; a subclass says what `rotate` does."""

    kv_heads = HEADS

    def __init__(self, layer: int = 0, bias: bool = False) -> None:
        super().__init__()
        self.layer = layer
        self.q_proj, self.o_proj = nn.Linear(WIDTH, WIDTH, bias=bias), nn.Linear(WIDTH, WIDTH)
        self.k_proj, self.v_proj = (nn.Linear(WIDTH, self.kv_heads * DIM, bias=bias) for _ in range(2))

    def heads(self, x):
        return x.view(*x.shape[:2], -1, DIM).transpose(1, 2)

    def rotate(self, q, k, *positional):
        return q, k

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def forward(self, x, *positional):
        q, k, v = (self.heads(proj(x)) for proj in (self.q_proj, self.k_proj, self.v_proj))
        q, k = self.rotate(q, k, *positional)
        return self.o_proj(self.attend(q, k, v).transpose(1, 2).reshape(x.shape))


def ids(tokens: int = TOKENS) -> Tensor:
    return torch.tensor([[(11 * i + 5) % 64 for i in range(tokens)]])


def both(turn: Turn | Other | None, layers: int = 2, where: str = "layers.{}.attn") -> tuple[Site, ...]:
    """The same for q and k of every layer."""
    return tuple(Site(where.format(i), q=turn, k=turn) for i in range(layers))


def decoder(name: str, attention, truth, model=Decoder, inputs=None, **options) -> Case:
    """A case of one decoder; ``truth`` is a `Truth`, or the turn of q and k in every layer."""
    truth = truth if isinstance(truth, Truth) else Truth(both(truth))
    return Case(name, lambda: model(attention), inputs or (ids(),), truth, **options)
