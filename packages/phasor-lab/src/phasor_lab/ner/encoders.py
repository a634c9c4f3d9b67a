"""Encoders: ``(ids [B, S], mask [B, S]) -> [B, S, width]``, alike for a sentence alone and padded in a batch.

The convolution has words, given by their features: ``ids [B, S, features]``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .config import SpanConfig
from .embeddings import Locked, Maxout, WordEmbedding


class BiLSTM(nn.Module):
    """On characters. Two LSTMs a layer, one on the reversed text: reversed inside its own length, padding is last for
    both. Torch's own, on packed sequences, takes three times as long on a CPU."""

    def __init__(self, config: SpanConfig) -> None:
        super().__init__()
        self.width = config.dim
        self.embedding = nn.Embedding(config.vocab, config.dim)
        half = config.dim // 2
        self.forwards, self.backwards = (
            nn.ModuleList(nn.LSTM(config.dim, half, batch_first=True) for _ in range(config.layers)) for _ in range(2)
        )
        self.dropout = Locked(config.dropout)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.dropout(self.embedding(ids))
        there = reversed_within(mask)
        for forwards, backwards in zip(self.forwards, self.backwards, strict=True):
            x = torch.cat((forwards(x)[0], _take(backwards(_take(x, there))[0], there)), dim=-1)
            x = self.dropout(x)
        return x


def reversed_within(mask: Tensor) -> Tensor:
    """For each row the indices that reverse its tokens and leave its padding, which must be last, where it is.

    >>> reversed_within(torch.tensor([[True, True, True, False]])).tolist()
    [[2, 1, 0, 3]]
    """
    index = torch.arange(mask.shape[1], device=mask.device)
    length = mask.sum(1, keepdim=True)
    return torch.where(index < length, length - 1 - index, index)


def _take(x: Tensor, index: Tensor) -> Tensor:
    """``x[b, index[b, s]]``, by rows of the flat batch: the gradient of ``gather`` is three times as slow."""
    rows = index + index.shape[1] * torch.arange(index.shape[0], device=index.device).unsqueeze(1)
    return x.flatten(0, 1).index_select(0, rows.flatten()).view(x.shape)


class Convolution(nn.Module):
    """On words: layers that look at a word and its two neighbours, ``x + maxout(left, x, right)``.

    That is spaCy's MaxoutWindowEncoder with a norm. ``layers`` of them see as many tokens to each side.
    """

    def __init__(self, config: SpanConfig) -> None:
        super().__init__()
        self.width = config.dim
        self.embedding = WordEmbedding(config)
        self.layers = nn.ModuleList(Maxout(3 * config.dim, config.dim) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            around = F.pad(x * mask.unsqueeze(-1), (0, 0, 1, 1))
            window = torch.cat((around[:, :-2], around[:, 1:-1], around[:, 2:]), dim=-1)
            x = x + self.dropout(layer(window))
        return x


class Pretrained(nn.Module):
    """A transformers encoder; the model's dropout acts on its output."""

    def __init__(self, model: nn.Module, dropout: float) -> None:
        super().__init__()
        self.model = model
        self.dropout = nn.Dropout(dropout)
        self.width = int(model.config.hidden_size)  # type: ignore[union-attr, arg-type]

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        out: Tensor = self.dropout(self.model(input_ids=ids, attention_mask=mask.to(torch.int64)).last_hidden_state)
        return out


Encoder = BiLSTM | Convolution | Pretrained


def make_encoder(config: SpanConfig, pretrained: nn.Module | None = None) -> Encoder:
    """The encoder of ``config``; ``pretrained`` is the transformers model where it is one."""
    if config.encoder == "pretrained":
        assert pretrained is not None
        return Pretrained(pretrained, config.dropout)
    return BiLSTM(config) if config.encoder == "bilstm" else Convolution(config)
