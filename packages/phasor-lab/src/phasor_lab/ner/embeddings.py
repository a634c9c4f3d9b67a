"""What encoders from scratch are made of: the first vectors of words, a maxout, and a dropout of whole channels."""

import torch
from torch import Tensor, nn

from .config import SpanConfig
from .words import FEATURES

FEATURE_WIDTH = 64
FEATURE_DROPOUT = 0.3  # of single features in training, so that a word which was never seen is nothing unusual


class Locked(nn.Module):
    """Dropout of whole channels of a sentence, the same for all its tokens (Gal and Ghahramani 2016, 1512.05287)."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.p:
            return x
        return x * x.new_empty(x.shape[0], 1, x.shape[2]).bernoulli_(1 - self.p).div_(1 - self.p)


class WordEmbedding(nn.Module):
    """Words ``[B, S, features] -> [B, S, dim]``: the embeddings of their features, mixed by a maxout of three.

    All features share one table, and in training each is left out with probability `FEATURE_DROPOUT`.
    """

    def __init__(self, config: SpanConfig) -> None:
        super().__init__()
        self.features = nn.Embedding(config.rows, FEATURE_WIDTH)
        nn.init.normal_(self.features.weight, std=0.1)
        self.mix = Maxout(len(FEATURES) * FEATURE_WIDTH, config.dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.features(ids)
        if self.training:
            x = x * x.new_empty(*x.shape[:-1], 1).bernoulli_(1 - FEATURE_DROPOUT)
        out: Tensor = self.dropout(self.mix(x.flatten(-2)))
        return out


class Maxout(nn.Module):
    """The largest of three linear maps, channel by channel, normed (Goodfellow et al. 2013, arXiv:1302.4389)."""

    def __init__(self, width: int, dim: int) -> None:
        super().__init__()
        self.maps = nn.Linear(width, 3 * dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(torch.unflatten(self.maps(x), -1, (-1, 3)).amax(-1))
        return out
