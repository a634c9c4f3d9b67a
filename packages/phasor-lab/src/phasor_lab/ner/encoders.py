"""Encoders: ``(ids [B, S], mask [B, S]) -> [B, S, width]``, alike for a sentence alone and padded in a batch.

Words are given by their features, ``ids [B, S, features]``.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phasor import RotarySpec, Rotation, apply_rotary_qk
from phasor.encodings.attention import attention

from .config import SpanConfig
from .embeddings import Locked, Maxout, make_embedding


class LSTM(nn.LSTM):
    """torch's LSTM, on a CPU in float32 even under autocast: only some CPUs have one in bfloat16."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        with torch.autocast("cpu", enabled=False):  # tensors on a GPU have an autocast of their own, which stays on
            output: Tensor = super().forward(x)[0]
        return output


class BiLSTM(nn.Module):
    """Two LSTMs a layer, one on the reversed text. Reversed inside its own length: padding is last for both."""

    def __init__(self, config: SpanConfig) -> None:
        super().__init__()
        self.width = config.dim
        self.embedding = make_embedding(config)
        half = config.dim // 2
        self.forwards = nn.ModuleList(LSTM(config.dim, half, batch_first=True) for _ in range(config.layers))
        self.backwards = nn.ModuleList(LSTM(config.dim, half, batch_first=True) for _ in range(config.layers))
        self.dropout = Locked(config.dropout)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(ids)
        there = reversed_within(mask)
        for forwards, backwards in zip(self.forwards, self.backwards, strict=True):
            x = torch.cat((forwards(x), _take(backwards(_take(x, there)), there)), dim=-1)
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
    """Layers that look at a token and its two neighbours: ``x + maxout(left, x, right)``.

    That is spaCy's MaxoutWindowEncoder with a norm. ``layers`` of them see as many tokens to each side.
    """

    def __init__(self, config: SpanConfig) -> None:
        super().__init__()
        self.width = config.dim
        self.embedding = make_embedding(config)
        self.layers = nn.ModuleList(Maxout(3 * config.dim, config.dim) for _ in range(config.layers))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            around = F.pad(x * mask.unsqueeze(-1), (0, 0, 1, 1))
            window = torch.cat((around[:, :-2], around[:, 1:-1], around[:, 2:]), dim=-1)
            x = x + self.dropout(layer(window))
        return x


class Transformer(nn.Module):
    """Pre-norm layers of attention in both directions and GELU, with rotary positions or with none."""

    def __init__(self, config: SpanConfig) -> None:
        super().__init__()
        self.width = config.dim
        self.embedding = make_embedding(config)
        self.layers = nn.ModuleList(TransformerLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        rotary = config.encoder_positions == "rotary"
        self.rotary = RotarySpec(head_dim=config.dim // config.heads) if rotary else None

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        x = self.embedding(ids)
        positions = torch.arange(ids.shape[1], device=ids.device)
        rotation = None if self.rotary is None else Rotation.at(self.rotary, positions)
        for layer in self.layers:
            x = layer(x, positions, mask, rotation)
        out: Tensor = self.norm(x)
        return out


class TransformerLayer(nn.Module):
    def __init__(self, config: SpanConfig) -> None:
        super().__init__()
        dim = config.dim
        self.heads = config.heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, positions: Tensor, mask: Tensor, rotation: Rotation | None) -> Tensor:
        q, k, v = torch.unflatten(self.qkv(self.attention_norm(x)), -1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        if rotation is not None:
            q, k = apply_rotary_qk(q, k, rotation)
        mixed = attention(q, k, v, q_positions=positions, causal=False, key_padding_mask=~mask)
        x = x + self.dropout(self.out(mixed.transpose(1, 2).flatten(-2)))
        return x + self.dropout(self.down(F.gelu(self.up(self.mlp_norm(x)))))


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


Encoder = BiLSTM | Convolution | Transformer | Pretrained
FROM_SCRATCH: dict[str, type[BiLSTM | Convolution | Transformer]] = {
    "bilstm": BiLSTM, "convolution": Convolution, "transformer": Transformer,
}  # fmt: skip


def make_encoder(config: SpanConfig, pretrained: nn.Module | None = None) -> Encoder:
    """The encoder of ``config``; ``pretrained`` is the transformers model where it is one."""
    if config.encoder == "pretrained":
        assert pretrained is not None
        return Pretrained(pretrained, config.dropout)
    return FROM_SCRATCH[config.encoder](config)
