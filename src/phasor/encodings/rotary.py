from typing import Any

from torch import Tensor

from ..rotary.apply import TensorFormat, rotate
from ..rotary.spec import RotarySpec
from .base import Encoding


class Rotary(Encoding):
    """Rotary encoding as a module: q and k are rotated by their positions, so scores depend on distance only.

    ``(R_m q) . (R_n k) = q^T R_{n-m} k`` (Su et al. 2021, arXiv:2104.09864, eq. 12-16). ``spec`` says which rotation;
    ``seq_len`` is needed by scalings that depend on length, and is fixed here so that cached keys stay consistent;
    ``kernel`` as in `phasor.apply_rotary`.

    It has no parameters and no buffers: nothing for ``.to()``, ``state_dict``, the meta device or sharding to change.
    In attention of your own, call it where q and k are ready: ``q, k = rotary(q, k, positions)``. Tables are formed in
    every call; where many layers share a spec, form them once: `Rotation.at`, then `phasor.apply_rotary_qk`.

    `phasor.attention` takes one position per token. A spec with several axes has several: there, rotate q and
    k first and call attention without an encoding, with the order of the tokens as positions.

    >>> import torch
    >>> q = torch.tensor([1.0, 0.0]).view(1, 1, 1, 2)
    >>> rotated, _ = Rotary(RotarySpec(head_dim=2))(q, q, torch.tensor([1]))
    >>> [round(x, 4) for x in rotated.flatten().tolist()]  # cos 1, sin 1
    [0.5403, 0.8415]
    """

    def __init__(
        self, spec: RotarySpec | None = None, seq_len: int | None = None, *, kernel: str = "auto", **of_spec: Any
    ) -> None:
        super().__init__()
        if of_spec:
            fields = ", ".join(f"{name}=..." for name in of_spec)
            raise ValueError(f"{' and '.join(of_spec)} must be in the spec: Rotary(RotarySpec({fields}))")
        if not isinstance(spec, RotarySpec):
            raise ValueError(f"spec must be a RotarySpec, got {type(spec).__name__}; RotarySpec(head_dim=...) is one")
        self.spec, self.seq_len, self.kernel, self.axes = spec, seq_len, kernel, spec.axes.count

    def forward(
        self,
        q: Tensor,
        k: Tensor,
        positions: Tensor,
        *,
        k_positions: Tensor | None = None,
        tensor_format: TensorFormat = "bhsd",
        num_heads: int | None = None,
    ) -> tuple[Tensor, Tensor]:
        """q and k rotated, as by `phasor.rotate`: new tensors. ``positions`` are int64 ``[S]`` or ``[B, S]``."""
        return rotate(
            q, k, positions, self.spec,
            k_positions=k_positions, seq_len=self.seq_len, tensor_format=tensor_format, num_heads=num_heads,
            kernel=self.kernel,
        )  # fmt: skip

    def rotate(self, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor) -> tuple[Tensor, Tensor]:
        return self(q, k, q_positions, k_positions=None if k_positions is q_positions else k_positions)
