import torch
from torch import Tensor, nn

from ..rotary.temperature import LogFloor, Power
from ..support.checks import whole
from .base import Encoding, check_heads, wide


class Tempered(Encoding):
    """No positions, but sharper attention: ``logit = scale a_h t(m) q_m . k_n``.

    ``heads`` is a, a factor for each head, learned: without positions, heads spread their attention as contexts grow,
    each at a rate of its own. It starts at one. ``scheme`` is t, a factor that grows with the query's position, such as
    `phasor.temperature.LogFloor` of Llama 4's layers without rotary. The query is multiplied, so that every kernel and
    any cache does.

    Source: Wang et al. 2024, arXiv:2404.12224, section 4 (a); Nakanishi 2025, arXiv:2501.19399 (t).

    >>> from phasor.temperature import LogFloor
    >>> encoding = Tempered(num_heads=1, scheme=LogFloor(beta=1.0, length=2))
    >>> q = torch.ones(1, 1, 3, 1)
    >>> encoding.rotate(q, q, torch.arange(3), torch.arange(3))[0].flatten().tolist()  # 1, 1, 1 + ln 2
    [1.0, 1.0, 1.6931471824645996]
    """

    def __init__(self, num_heads: int, *, scheme: LogFloor | Power | None = None) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        if scheme is not None and not isinstance(scheme, LogFloor | Power):
            raise ValueError(f"scheme must be a LogFloor or Power of phasor.temperature, or None, got {scheme!r}")
        self.num_heads, self.scheme = num_heads, scheme
        self.heads = nn.Parameter(torch.empty(num_heads))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """One: no change."""
        nn.init.ones_(self.heads)

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        check_heads(self, self.num_heads, q)
        factor = self.heads.to(wide(q.dtype)).view(-1, 1, 1)
        if self.scheme is not None:
            factor = factor * self.scheme.at(q_positions).unsqueeze(-1).unsqueeze(-3)
        return (q * factor).to(q.dtype), k
