import torch

from ..support.checks import whole
from .by_distance import ByDistance, Term


def alibi_slopes(num_heads: int) -> tuple[float, ...]:
    """One slope per head, ``2 ** (-8 h / H)`` for ``h = 1 ... H`` where H is a power of two.

    Any other H takes the slopes of the power of two below, ``c``, and then every other slope of ``2 c``, as the
    authors' code does (the paper's text covers powers of two only).

    Source: Press et al. 2021, arXiv:2108.12409, section 3, and ``get_slopes`` of its code.

    >>> alibi_slopes(4)
    (0.25, 0.0625, 0.015625, 0.00390625)
    >>> alibi_slopes(3)  # those of 2 heads, and the first of 4
    (0.0625, 0.00390625, 0.25)
    """
    whole("num_heads", num_heads)
    power = 1 << (num_heads.bit_length() - 1)  # the largest power of two up to num_heads
    slopes = tuple(2.0 ** (-8 * h / power) for h in range(1, power + 1))
    if power == num_heads:
        return slopes
    return slopes + alibi_slopes(2 * power)[0::2][: num_heads - power]


class ALiBi(ByDistance):
    """A penalty that grows with distance: ``bias = -slope_h (m - n)``, added to the scaled logits.

    ``symmetric=True`` is the form for encoders, ``-slope_h |m - n|``. A rank of a tensor-parallel group that holds
    heads ``head_offset ... head_offset + num_heads`` of ``total_heads`` gets the slopes of exactly those heads.

    BLOOM and Falcon add ``slope_h n`` instead, which differs by a constant per query and gives the same softmax.
    Published checkpoints that use float32 slopes agree to float32 rounding. Falcon's code rounds its slopes to bfloat16
    first: of a power of two of heads they stay what they are, of others (71 in Falcon-7B) they change by up to 0.4 %.

    Source: Press et al. 2021, arXiv:2108.12409, section 3.

    >>> encoding = ALiBi(num_heads=8)
    >>> q, t = torch.zeros(1, 8, 1, 2), torch.arange(4)
    >>> encoding.bias(q, q, t[3:], t, scale=1.0)[0, 0].tolist()  # head 0: slope 1/2, query at position 3
    [-1.5, -1.0, -0.5, -0.0]
    >>> ALiBi(num_heads=2, total_heads=4, head_offset=2).slopes
    (0.015625, 0.00390625)
    """

    way_out = "; for a part of the heads give total_heads and head_offset"

    def __init__(
        self, num_heads: int, *, total_heads: int | None = None, head_offset: int = 0, symmetric: bool = False
    ) -> None:
        super().__init__()
        whole("num_heads", num_heads)
        whole("head_offset", head_offset, at_least=0)
        total_heads = num_heads if total_heads is None else total_heads
        whole("total_heads", total_heads)
        if head_offset + num_heads > total_heads:
            raise ValueError(
                f"total_heads must be at least head_offset + num_heads = {head_offset + num_heads}, got {total_heads}; "
                "give total_heads= the heads of the whole model"
            )
        self.num_heads = num_heads
        self.symmetric = symmetric
        self.slopes = alibi_slopes(total_heads)[head_offset : head_offset + num_heads]

    def term(self, dtype: torch.dtype, device: torch.device) -> Term:
        slopes = torch.tensor(self.slopes, dtype=dtype, device=device)
        return lambda h, r: -slopes[h] * (r.abs() if self.symmetric else -r).to(dtype)

    def extra_repr(self) -> str:
        return f"slopes={self.slopes}, symmetric={self.symmetric}"
