from bisect import bisect_left

import torch
from torch import Tensor, nn

from ..support.checks import whole
from ..support.tracing import constant
from .by_distance import ByDistance, Term


def t5_bucket(relative: Tensor, *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128) -> Tensor:
    """T5's bucket of ``relative = n - m`` (key minus query): int64 ``[...]`` -> int64 ``[...]``.

    With N buckets and ``e = N // 2``, a distance r below e has its own bucket; from e on
    ``min(N - 1, e + floor(ln(r / e) / ln(max_distance / e) (N - e)))``. ``bidirectional`` halves N, and keys after the
    query use the second half; otherwise they share bucket 0. The bounds are found in integers, so the distances at
    which the logarithm is a whole number (16, 32, 64 of an encoder) fall on the right side.

    Source: Raffel et al. 2019, arXiv:1910.10683, section 2.1, and Mesh TensorFlow's ``_relative_position_bucket``.

    >>> t5_bucket(torch.tensor([0, -1, -15, -16, -19, -1000, 5]), bidirectional=False).tolist()
    [0, 1, 15, 16, 17, 31, 0]
    >>> t5_bucket(torch.tensor([-7, -8, 7, 8]), bidirectional=True).tolist()
    [7, 8, 23, 24]
    """
    return _bucket(relative, bidirectional, num_buckets, _bounds(bidirectional, num_buckets, max_distance))


class T5Bias(ByDistance):
    """A learned logit per head and bucket of distance: ``bias = table[bucket(n - m)]_h``, not scaled.

    ``table.weight`` is ``[num_buckets, num_heads]``, the layout of ``relative_attention_bias`` in T5 checkpoints, where
    one table serves all layers (UMT5: one per layer). Encoders are ``bidirectional``, decoders are not.

    T5 itself does not divide the logits by ``sqrt(head_dim)``, other models with this bias do; so
    ``attention(..., scale=)`` must be given.

    Source: Raffel et al. 2019, arXiv:1910.10683, section 2.1.

    >>> encoding = T5Bias(num_heads=2, bidirectional=False)
    >>> q, t = torch.zeros(1, 2, 3, 4), torch.arange(3)
    >>> encoding.bias(q, q, t, t, scale=1.0).shape
    torch.Size([2, 3, 3])
    """

    def __init__(self, num_heads: int, *, bidirectional: bool, num_buckets: int = 32, max_distance: int = 128) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        self.num_heads, self.bidirectional = num_heads, bidirectional
        self.num_buckets, self.max_distance = num_buckets, max_distance
        self._bounds = _bounds(bidirectional, num_buckets, max_distance)
        self.farthest = self._bounds[-1]
        self.table = nn.Embedding(num_buckets, num_heads)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Normal with deviation 0.02."""
        nn.init.normal_(self.table.weight, std=0.02)

    def term(self, dtype: torch.dtype, device: torch.device) -> Term:
        logits = self.table.weight.to(dtype)
        return lambda h, r: logits[_bucket(r, self.bidirectional, self.num_buckets, self._bounds), h]

    def default_scale(self, head_dim: int) -> float:
        raise ValueError(
            "scale must be given with T5Bias: T5 checkpoints use scale=1.0, other models with this bias "
            f"scale=1/sqrt(head_dim)={head_dim**-0.5:g}; got scale=None"
        )


def _bucket(relative: Tensor, bidirectional: bool, num_buckets: int, bounds: tuple[int, ...]) -> Tensor:
    distance = relative.abs() if bidirectional else (-relative).clamp(min=0)
    bucket = torch.bucketize(distance, torch.tensor(bounds, device=relative.device), right=True)
    return bucket + (relative > 0) * (num_buckets // 2) if bidirectional else bucket


@constant
def _bounds(bidirectional: bool, num_buckets: int, max_distance: int) -> tuple[int, ...]:
    """The smallest distance in each bucket but the first: bucket = how many of these a distance reaches.

    Bucket ``e + j`` begins at the smallest r with ``ln(r / e) / ln(D / e) n >= j``, that is ``r^n e^j >= D^j e^n``.
    """
    whole("num_buckets", num_buckets, at_least=4 if bidirectional else 2)
    if bidirectional and num_buckets % 2:
        raise ValueError(f"num_buckets must be even if bidirectional (half for each side), got {num_buckets}")
    one_side = num_buckets // 2 if bidirectional else num_buckets
    exact = one_side // 2
    whole("max_distance", max_distance, at_least=exact + 1)
    spread = one_side - exact

    def begins(j: int) -> int:
        least = max_distance**j * exact**spread  # integers of any size: a logarithm could round across a bound
        return bisect_left(range(max_distance), least, key=lambda r: r**spread * exact**j)

    return (*range(1, exact + 1), *(begins(j) for j in range(1, spread)))
