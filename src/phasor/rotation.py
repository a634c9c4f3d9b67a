"""Rotation: P plane rotations per token, held as cos and sin. It does not matter which path formed them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import whole
from .spec import RotarySpec
from .tables import check_log_scale, check_positions, tables


class Rotation(NamedTuple):
    """cos and sin of every pair at every token, with all that is needed to apply them to a head.

    ``cos`` and ``sin`` are ``[S, P]`` or ``[B, S, P]``; with ``per_head`` they are ``[(B,) H, S, P]``. ``interleaved``,
    ``blocks`` and ``trailing`` say which channels form pair ``i`` and which slice of the head turns (`phasor.pairs`);
    with ``permuted`` the pairs are written back in the other layout, halves for interleaved and the reverse.
    ``magnitude`` is the factor already inside cos and sin (the attention factor; 1 for a pure rotation). ``head_dim``
    is the width of the heads it is made for, where that is known: others are refused. With ``promoted`` the result
    keeps the wider dtype of cos and sin. ``second`` is cos and sin of the second members of the pairs, where a model
    turns them by other angles than the first (not a rotation: see `RotarySpec`).

    >>> Rotation.at(RotarySpec(head_dim=2), torch.tensor([0, 1])).cos.shape
    torch.Size([2, 1])
    """

    cos: Tensor
    sin: Tensor
    interleaved: bool = False
    trailing: bool = False
    per_head: bool = False
    magnitude: float = 1.0
    head_dim: int | None = None
    blocks: int = 1
    permuted: bool = False
    promoted: bool = False
    second: tuple[Tensor, Tensor] | None = None

    @classmethod
    def at(
        cls,
        spec: RotarySpec,
        positions: Tensor,
        seq_len: int | None = None,
        *,
        log_scale: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> "Rotation":
        """The rotation of ``spec`` at ``positions``, on their device.

        ``positions`` is ``[S]`` or ``[B, S]``; for a spec with ``A`` axes ``[A, S]`` or ``[A, B, S]``. Negative ones
        turn backwards. They are integers, or of any real dtype from float32 for a spec with real coordinates.
        ``dtype`` is the dtype of the activations to be rotated: cos and sin are float64 for float64 and float32
        otherwise, except with float32 or float64 angles, where they are rounded as ``spec.tables`` says (name the
        dtype then, or the bits are not those of the model's code). ``log_scale`` ``[P]`` is the trained tensor of a
        spec with learned frequencies; gradients pass to it.

        Exact angles are right to 2.5e-7 for every ``|position| <= 2**31``, for cos and sin in float32.

        Raises ``ValueError`` if positions are not integers, if their rank does not fit the axes, if the frequencies
        depend on the length of the sequence and ``seq_len`` is missing, and if ``log_scale`` is missing or not wanted.

        >>> Rotation.at(RotarySpec(head_dim=2), torch.tensor([0])).cos.tolist()
        [[1.0]]
        """
        positions = check_positions(positions, spec)
        if seq_len is not None:
            whole("seq_len", seq_len)
        if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
            raise ValueError(f"dtype must be the floating-point dtype of the activations, got {dtype}")
        if seq_len is None and spec.length_dependent:
            name = spec.scaling.name if spec.scaling else ""
            raise ValueError(
                f"seq_len is missing: {name} scaling has frequencies that depend on the length of the whole sequence, "
                "prompt and generation; pass seq_len= and keep it for the life of the sequence"
            )
        if log_scale is not None or spec.learned:
            check_log_scale(log_scale, spec)
        cos, sin = tables(spec, positions, seq_len, log_scale, dtype)
        second = None
        if spec.second is not None:
            second = tables(spec, positions, seq_len, log_scale, dtype, second=True)
        promoted = spec.angles != "exact" and spec.tables == "promoted"
        layout = (spec.interleaved, spec.trailing, False, spec.attention_factor(seq_len), spec.head_dim)
        return cls(cos, sin, *layout, spec.blocks, spec.permuted, promoted, second)

    @classmethod
    def from_angles(
        cls, angles: Tensor, *, interleaved: bool = False, trailing: bool = False, per_head: bool = False
    ) -> "Rotation":
        """The rotation by explicit ``angles`` in radians ``[..., S, P]``, float32 or float64; gradients pass.

        >>> Rotation.from_angles(torch.zeros(3, 2)).sin.abs().max().item()
        0.0
        """
        if angles.dtype not in (torch.float32, torch.float64):
            raise ValueError(
                f"angles must be float32 or float64 (half precision cannot hold an angle), got {angles.dtype}; "
                "convert them before the product that forms them"
            )
        return cls(angles.cos(), angles.sin(), interleaved, trailing, per_head)

    @classmethod
    def from_frequencies(
        cls, positions: Tensor, inv_freq: Tensor, *, interleaved: bool = False, trailing: bool = False
    ) -> "Rotation":
        """Learned frequencies or fractional positions: ``angle = sum over axes of position * inv_freq``.

        Gradients pass. ``inv_freq``, float32 or float64, is ``[P]`` with ``positions`` ``[(B,) S]``;
        ``[A, P]`` with ``[A, (B,) S]``; or ``[H, A, P]``, one set per head (RoPE-Mixed). Positions may be any real
        dtype. The product is formed in the dtype of ``inv_freq``, so the angle's error is about its rounding step
        times the angle: use float64 for long ranges, or `at` for integer positions and fixed frequencies.

        >>> r = Rotation.from_frequencies(torch.tensor([0.0, 0.5]), torch.tensor([torch.pi]))
        >>> r.sin[1].item()
        1.0
        """
        if inv_freq.dtype not in (torch.float32, torch.float64):
            raise ValueError(f"inv_freq must be float32 or float64, got {inv_freq.dtype}; convert it first")
        if inv_freq.ndim not in (1, 2, 3):
            raise ValueError(f"inv_freq must be [P], [axes, P] or [heads, axes, P], got shape {tuple(inv_freq.shape)}")
        if positions.dtype == torch.bool or positions.is_complex():
            raise ValueError(f"positions must be real numbers, got {positions.dtype}")
        if inv_freq.ndim == 1:
            positions, inv_freq = positions.unsqueeze(0), inv_freq.unsqueeze(0)
        axes = inv_freq.shape[-2]
        if positions.ndim < 2 or positions.shape[0] != axes:
            raise ValueError(f"positions must be [axes, (batch,) seq] with {axes} axes, got {tuple(positions.shape)}")
        at, per_head = positions.to(inv_freq.dtype), inv_freq.ndim == 3
        if per_head:
            at = at.unsqueeze(-2)
        turned = (at[a].unsqueeze(-1) * inv_freq[..., a, :].unsqueeze(-2) for a in range(axes))
        return cls.from_angles(sum(turned), interleaved=interleaved, trailing=trailing, per_head=per_head)  # type: ignore[arg-type]

    def inverse(self) -> "Rotation":
        """What undoes it: turns back, and divides by the magnitude. New tensors.

        >>> r = Rotation.at(RotarySpec(head_dim=2), torch.tensor([1]))
        >>> bool((r.inverse().sin == -r.sin).all())
        True
        """
        self._must_be_orthogonal("inverse")
        shrink = self.magnitude**-2
        cos, sin = (self.cos, -self.sin) if shrink == 1 else (self.cos * shrink, -self.sin * shrink)
        return self._replace(cos=cos, sin=sin, magnitude=1 / self.magnitude, interleaved=self.writes_interleaved())

    def transpose(self) -> "Rotation":
        """The adjoint: turns back and keeps the magnitude. Equal to the inverse if the magnitude is 1."""
        sin, second = self.sin, None
        if self.second is not None:  # the transpose of ((cos_1, -sin_1), (sin_2, cos_2))
            sin, second = self.second[1], (self.second[0], -self.sin)
        return self._replace(sin=-sin, second=second, interleaved=self.writes_interleaved())

    def compose(self, other: "Rotation") -> "Rotation":
        """Both, one after the other: angles add, magnitudes multiply. Raises ``ValueError`` if the layouts differ.

        ``other`` must read the layout that this one writes (they differ where pairs are ``permuted``).
        """
        self._must_be_orthogonal("compose")
        other._must_be_orthogonal("compose")
        if self.cos.shape[-1] != other.cos.shape[-1]:
            raise ValueError(
                f"rotations must have as many pairs to be composed, got {self.cos.shape[-1]} and {other.cos.shape[-1]}"
            )
        written = (self.writes_interleaved(), self.trailing, self.per_head, self.blocks)
        read = (other.interleaved, other.trailing, other.per_head, other.blocks)
        if written != read:
            raise ValueError(
                "rotations must agree in (interleaved, trailing, per_head, blocks) to be composed, "
                f"got {written} written and {read} read"
            )
        return self._replace(
            cos=self.cos * other.cos - self.sin * other.sin,
            sin=self.sin * other.cos + self.cos * other.sin,
            magnitude=self.magnitude * other.magnitude,
            permuted=self.permuted != other.permuted,
        )

    # Methods, because torch.compile of torch 2.10 does not trace the properties of a named tuple.
    def layout(self) -> dict[str, Any]:
        """Which channels form the pairs and what the result is, as the kernels take it."""
        return {
            "interleaved": self.interleaved,
            "trailing": self.trailing,
            "blocks": self.blocks,
            "permuted": self.permuted,
            "promoted": self.promoted,
        }

    def writes_interleaved(self) -> bool:
        """The layout of the result: that of the input, unless ``permuted``."""
        return self.interleaved != self.permuted

    def _must_be_orthogonal(self, name: str) -> None:
        if self.second is not None:
            raise ValueError(
                f"{name} needs a rotation, got one with second angles (spec.second), which is not orthogonal; "
                "transpose() is its adjoint"
            )

    def padded(self, before: int = 0, after: int = 0) -> "Rotation":
        """With tokens that pass unturned in front and behind: class and register tokens. New tensors.

        Raises ``ValueError`` if it has a magnitude, which such tokens would not get.

        >>> Rotation.at(RotarySpec(head_dim=2), torch.tensor([3])).padded(before=2).sin[:2].tolist()
        [[0.0], [0.0]]
        """
        whole("before", before, at_least=0)
        whole("after", after, at_least=0)
        if self.magnitude != 1:
            raise ValueError(
                f"padded needs a rotation of magnitude 1 (passing tokens are not scaled), got {self.magnitude}"
            )
        pad = (0, 0, before, after)

        fill = torch.nn.functional.pad
        return self._with_tables(lambda cos, sin: (fill(cos, pad, value=1.0), fill(sin, pad)))

    def to(self, device: torch.device | str) -> "Rotation":
        """The same rotation on another device."""
        return self._with_tables(lambda cos, sin: (cos.to(device), sin.to(device)))

    def slice(self, start: int, stop: int) -> "Rotation":
        """Tokens ``start`` to ``stop`` of the sequence, as views."""
        return self._with_tables(lambda cos, sin: (cos[..., start:stop, :], sin[..., start:stop, :]))

    def _with_tables(self, change: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> "Rotation":
        cos, sin = change(self.cos, self.sin)
        return self._replace(cos=cos, sin=sin, second=None if self.second is None else change(*self.second))
