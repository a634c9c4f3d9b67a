import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..support.checks import whole
from .base import Encoding, Tokens, check_heads, for_heads, wide


class DAPE(Encoding):
    """Data-adaptive encoding: a small network corrects a bias by the scores, over all heads of a pair at once.

    ::

        logits = S + B + f([S; B]),    S = scale q k^T,    f: 2 H -> width -> H with LeakyReLU(0.01), for each (i, j)

    B is what ``inner`` adds: `ALiBi`, KERPLE in its logarithmic form and FIRE in the paper. S enters unmasked. All
    heads must be on one device. Networks start as `torch.nn.Linear` does. A row needs its own keys only, so decoding
    is exact.

    Source: Zheng et al. 2024, arXiv:2405.14722, section 3; chuanyang-Zheng/DAPE.

    >>> from phasor.encodings import ALiBi
    >>> DAPE(ALiBi(num_heads=2), num_heads=2).first.weight.shape  # both kinds of numbers of two heads
    torch.Size([32, 4])
    """

    def __init__(self, inner: Encoding, num_heads: int, *, width: int = 32) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("width", width)
        others = ("gates", "values", "weights")
        if not isinstance(inner, Encoding) or any(getattr(type(inner), x) is not getattr(Encoding, x) for x in others):
            name = type(inner).__name__
            raise ValueError(f"inner must be an encoding that adds to the logits and nothing else, got {name}")
        self.inner, self.num_heads, self.window = inner, num_heads, inner.window
        for rule in ("causal_only", "in_order", "whole_only"):  # a correction does not lift what its bias asks for
            setattr(self, rule, getattr(type(self), rule) or getattr(inner, rule))
        self.first: nn.Module = nn.Linear(2 * num_heads, width)
        self.second: nn.Module = nn.Linear(width, num_heads)

    def reset_parameters(self) -> None:
        """As their layers start."""
        for module in (self.first, self.second, self.inner):
            getattr(module, "reset_parameters", tuple)()

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        return self.inner.embed(x, positions)

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        return self.inner.rotate(q, k, q_positions, k_positions)

    def default_scale(self, head_dim: int) -> float:
        """That of ``inner``."""
        return self.inner.default_scale(head_dim)

    def content_bias(self, q: Tensor, k: Tensor, tokens: Tokens, scale: float) -> Tensor:
        check_heads(self, self.num_heads, q)
        bias = self.inner.content_bias(q, k, tokens, scale)
        if bias is None:
            name = type(self.inner).__name__
            raise ValueError(f"inner must be an encoding that adds to the logits, got {name}; ALiBi(num_heads) is one")
        q, k = q.to(wide(q.dtype)), for_heads(k.to(wide(k.dtype)), q.shape[1])
        scores = scale * q @ k.mT
        return bias + self.correction(torch.cat((scores, bias.expand_as(scores)), dim=1), tokens)

    def correction(self, both: Tensor, tokens: Tokens) -> Tensor:
        """``f([S; B])``, from ``[B, 2 H, Q, K]``."""
        by_pair = F.leaky_relu(F.linear(both.movedim(1, -1), *_weights(self.first, both)))
        return F.linear(by_pair, *_weights(self.second, both)).movedim(-1, 1)


class DAPEv2(DAPE):
    """`DAPE` whose network also sees neighbouring keys: two convolutions along the keys, ``kernel`` wide.

    ``[S; B]`` is zero where a key may not be seen. The second convolution reads what the first one gives at the key
    *behind* the query, which a full pass has and decoding has not: a row computed alone with its own keys differs
    (by 0.04 to 0.08 with random weights). Trained models are so, and so is this. It takes whole sequences only and
    says so: no cache, padding, documents or mask.

    Source: Zheng et al. 2024, arXiv:2410.04798, section 3; chuanyang-Zheng/DAPE, megatron/model/positional_embeddings.

    >>> from phasor.encodings import ALiBi
    >>> DAPEv2(ALiBi(num_heads=2), num_heads=2).first.weight.shape
    torch.Size([32, 4, 1, 3])
    """

    causal_only, in_order, whole_only = True, True, True

    def __init__(self, inner: Encoding, num_heads: int, *, width: int = 32, kernel: int = 3) -> None:
        super().__init__(inner, num_heads, width=width)
        whole("kernel", kernel)
        if kernel % 2 == 0:
            raise ValueError(f"kernel must be odd, so that a key stands in its middle, got {kernel}")
        self.first = nn.Conv2d(2 * num_heads, width, (1, kernel))
        self.second = nn.Conv2d(width, num_heads, (1, kernel))

    def correction(self, both: Tensor, tokens: Tokens) -> Tensor:
        seen = both if tokens.visible is None else both * tokens.visible
        return self._along_keys(self.second, F.leaky_relu(self._along_keys(self.first, seen)))

    @staticmethod
    def _along_keys(layer: nn.Module, x: Tensor) -> Tensor:
        weight, bias = _weights(layer, x)
        if not x.numel():
            return x.new_zeros(len(x), len(weight), *x.shape[2:])
        return F.conv2d(x, weight, bias, padding=(0, weight.shape[-1] // 2))


def _weights(layer: nn.Module, like: Tensor) -> tuple[Tensor, Tensor]:
    weight, bias = layer.weight, layer.bias
    assert isinstance(weight, Tensor) and isinstance(bias, Tensor)
    return weight.to(like.dtype), bias.to(like.dtype)
