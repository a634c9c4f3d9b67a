import torch
from torch import Tensor, nn

from ..support.checks import flag, whole
from .base import Encoding, wide


class ComplexEmbedding(Encoding):
    """Each word is a wave of the position, in every channel: it takes the place of the word embeddings.

    ::

        f(word, t)_c = r_wc exp(i (omega_wc t + phi_wc))

    `embed` takes the ids of words, int64 ``[B, S]``, and gives complex ``[B, S, dim]``; the network behind it computes
    with complex numbers. The authors' code has no phase ``phi`` (``phase=True`` is the paper's) and counts from 1.

    Source: Wang et al. 2019, arXiv:1912.12333, eq. 6; github.com/iclr-complex-order/complex-order.

    >>> encoding = ComplexEmbedding(num_words=2, dim=1)
    >>> with torch.no_grad():
    ...     _ = encoding.amplitude.weight.fill_(2.0), encoding.frequency.weight.fill_(torch.pi / 2)
    >>> wave = encoding.embed(torch.tensor([[1, 1, 1]]), torch.arange(3)).flatten()  # a quarter turn for each position
    >>> wave.real.round().tolist(), wave.imag.round().tolist()
    ([2.0, -0.0, -2.0], [0.0, 2.0, -0.0])
    """

    def __init__(self, num_words: int, dim: int, *, phase: bool = False) -> None:
        super().__init__()
        whole("num_words", num_words)
        whole("dim", dim)
        flag("phase", phase)
        self.amplitude, self.frequency = nn.Embedding(num_words, dim), nn.Embedding(num_words, dim)
        self.phase = nn.Embedding(num_words, dim) if phase else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Frequencies ``w 10000 ** (-2 c / dim)`` of word w, as the authors' code; sizes normal, phases zero."""
        words, dim = self.frequency.weight.shape
        with torch.no_grad():
            ladder = 10_000.0 ** (-2 * torch.arange(dim, dtype=torch.float64) / dim)
            self.frequency.weight.copy_(torch.arange(words).unsqueeze(-1) * ladder)
        self.amplitude.reset_parameters()
        if self.phase is not None:
            nn.init.zeros_(self.phase.weight)

    def embed(self, x: Tensor, positions: Tensor) -> Tensor:
        """Ids ``[B, S]`` -> complex ``[B, S, dim]``, angles formed in float64."""
        if x.dtype != torch.int64:
            raise ValueError(f"x must be the int64 ids of words (ComplexEmbedding makes the embeddings), got {x.dtype}")
        angles = self.frequency(x).double() * positions.unsqueeze(-1)
        if self.phase is not None:
            angles = angles + self.phase(x).double()
        size = self.amplitude(x)
        size = size.to(wide(size.dtype))
        return torch.complex(size * angles.cos().to(size.dtype), size * angles.sin().to(size.dtype))
