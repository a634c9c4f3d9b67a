from torch import Tensor

from ..apply import apply_rotary, rotate
from ..rotation import Rotation
from ..spec import RotarySpec
from .base import Encoding


class Rotary(Encoding):
    """Rotary encoding: q and k are turned by their positions, so scores depend on distance only.

    ``(R_m q) . (R_n k) = q^T R_{n-m} k`` (Su et al. 2021, arXiv:2104.09864, eq. 12-16). ``spec`` says which rotation;
    ``seq_len`` is needed by scalings that depend on length, and is fixed here so that cached keys stay consistent.

    `phasor.attention.attention` takes one position per token. A spec with several axes has several: there, rotate q and
    k first (`phasor.rotate`) and call attention without an encoding, with the order of the tokens as positions.

    >>> import torch
    >>> q = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    >>> turned, _ = Rotary(RotarySpec(head_dim=2)).rotate(q, q, torch.tensor([1]), torch.tensor([1]))
    >>> [round(x, 4) for x in turned.flatten().tolist()]  # cos 1, sin 1
    [0.5403, 0.8415]
    """

    def __init__(self, spec: RotarySpec, seq_len: int | None = None) -> None:
        super().__init__()
        self.spec = spec
        self.seq_len = seq_len

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        if k_positions is q_positions:
            return rotate(q, k, q_positions, self.spec, seq_len=self.seq_len)
        q_rotation, k_rotation = (
            Rotation.at(self.spec, positions, self.seq_len, dtype=q.dtype) for positions in (q_positions, k_positions)
        )
        return apply_rotary(q, q_rotation), apply_rotary(k, k_rotation)

    def extra_repr(self) -> str:
        return f"{self.spec}" + (f", seq_len={self.seq_len}" if self.seq_len is not None else "")
