"""A small decoder of Llama's shape over bytes, with any encoding of the package."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from phasor import RotarySpec, Rotation, apply_rotary_qk
from phasor.encodings import CAPE, Encoding, Sinusoidal, T5Bias
from phasor.encodings.attention import attention
from phasor.support.checks import flag, number, one_of, whole

from ..run_folder.config import MOST_WEIGHTS, Config, at_most
from .encodings import ENCODINGS

VOCAB = 256  # one token per byte
MOST = {"layers": 1024, "dim": 2**14, "heads": 2**13, "length": 2**20}


@dataclass(frozen=True, kw_only=True)
class ModelConfig(Config):
    """The architecture. ``length`` is the training length: the size of the learned encoding's table, and what every
    evaluation is measured against. ``hidden`` is the width of SwiGLU, by default ``8/3 dim`` rounded up to a multiple
    of 8; ``kv_heads`` is by default ``heads``; ``tied`` shares the embedding with the output.

    >>> config = ModelConfig(dim=96, heads=4)
    >>> config.head_dim, config.hidden, config.kv_heads
    (24, 256, 4)
    """

    encoding: str = "rotary"
    layers: int = 2
    dim: int = 96
    heads: int = 4
    kv_heads: int = None  # type: ignore[assignment]  # replaced by heads
    hidden: int = None  # type: ignore[assignment]  # replaced by 8/3 dim
    length: int = 64
    base: float = 10_000.0
    tied: bool = True

    def __post_init__(self) -> None:
        for name, most in MOST.items():
            at_most(name, getattr(self, name), most)
        if self.kv_heads is None:
            object.__setattr__(self, "kv_heads", self.heads)
        if self.hidden is None:
            object.__setattr__(self, "hidden", -(-8 * self.dim // 24) * 8)
        whole("kv_heads", self.kv_heads)
        whole("hidden", self.hidden)
        number("base", self.base, above=1)
        one_of("encoding", self.encoding, list(ENCODINGS))
        if self.dim % (2 * self.heads):
            raise ValueError(f"dim must be a multiple of 2 heads = {2 * self.heads} (pairs per head), got {self.dim}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide heads = {self.heads}, got {self.kv_heads}")
        flag("tied", self.tied)
        weights = self.dim * (2 * VOCAB + self.length + self.layers * (4 * self.dim + 3 * self.hidden))
        at_most("the number of weights", weights, MOST_WEIGHTS, "make dim, hidden, layers or length smaller")

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def rotary_spec(self) -> RotarySpec | None:
        """The rotation of q and k; None for the other encodings."""
        return RotarySpec(head_dim=self.head_dim, base=self.base) if self.encoding == "rotary" else None


class Decoder(nn.Module):
    """RMSNorm, grouped heads, SwiGLU, no biases: with rotary it is transformers' ``LlamaForCausalLM``, same names.

    Models of one seed start from the same weights whatever their encoding.

    >>> Decoder(ModelConfig(dim=16, heads=2))(torch.zeros(1, 5, dtype=torch.int64)).shape
    torch.Size([1, 5, 256])
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens = nn.Embedding(VOCAB, config.dim)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.layers))
        self.norm = nn.RMSNorm(config.dim, eps=1e-5)
        self.lm_head = nn.Linear(config.dim, VOCAB, bias=False)
        for module in self.modules():
            if isinstance(module, nn.Linear | nn.Embedding):
                nn.init.normal_(module.weight, std=0.02)
        if config.tied:
            self.lm_head.weight = self.embed_tokens.weight
        made = ENCODINGS[config.encoding](config)
        self.encodings = nn.ModuleList([made] if isinstance(made, Encoding) else made)

    def forward(self, ids: Tensor, *, rotary: RotarySpec | Rotation | None = None) -> Tensor:
        """Logits ``[B, S, 256]`` of bytes ``[B, S]``. ``rotary`` is another rotation than the one trained with."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        x = self.embed_tokens(ids)
        first = self.encodings[0]
        if isinstance(first, Sinusoidal | CAPE):
            x = x * self.config.dim**0.5  # section 3.4 of Vaswani et al. 2017, as CAPE: else the sines drown the bytes
        assert isinstance(first, Encoding)
        x = first.embed(x, positions)
        rotation = rotary or self.config.rotary_spec
        if isinstance(rotation, RotarySpec):
            rotation = Rotation.at(rotation, positions, len(positions), dtype=x.dtype)
        for i, layer in enumerate(self.layers):
            x = layer(x, positions, self.encodings[i % len(self.encodings)], rotation)
        logits: Tensor = self.lm_head(self.norm(x))
        return logits


class Layer(nn.Module):
    """Attention and SwiGLU, each behind an RMSNorm and beside a residual connection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.input_layernorm = nn.RMSNorm(config.dim, eps=1e-5)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(config.dim, eps=1e-5)
        self.mlp = SwiGLU(config)

    def forward(self, x: Tensor, positions: Tensor, encoding: Encoding, rotation: Rotation | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), positions, encoding, rotation)
        out: Tensor = x + self.mlp(self.post_attention_layernorm(x))
        return out


class Attention(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        key_width = config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.dim, config.dim, bias=False)
        self.k_proj = nn.Linear(config.dim, key_width, bias=False)
        self.v_proj = nn.Linear(config.dim, key_width, bias=False)
        self.o_proj = nn.Linear(config.dim, config.dim, bias=False)

    def forward(self, x: Tensor, positions: Tensor, encoding: Encoding, rotation: Rotation | None) -> Tensor:
        q, k, v = (
            torch.unflatten(proj(x), -1, (-1, self.head_dim)).transpose(1, 2)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        if rotation is not None:  # formed once for all layers, and not again by the encoding
            q, k = apply_rotary_qk(q, k, rotation)
        acting = None if rotation is not None else encoding
        out = attention(
            q, k, v, acting, q_positions=positions, hidden=x if encoding.gated else None,
            scale=self.head_dim**-0.5 if isinstance(encoding, T5Bias) else None,  # of T5, whose weights are larger, 1
        )  # fmt: skip
        mixed: Tensor = self.o_proj(out.transpose(1, 2).flatten(-2))
        return mixed


class SwiGLU(nn.Module):
    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.dim, config.hidden, bias=False)
        self.up_proj = nn.Linear(config.dim, config.hidden, bias=False)
        self.down_proj = nn.Linear(config.hidden, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out
