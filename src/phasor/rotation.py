"""Rotation: P plane rotations per token, held as cos and sin. It does not matter which path formed them."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from .checks import whole
from .phase import cos_sin, phases
from .spec import RotarySpec, axis_steps, float32_frequencies
from .tracing import constant


class Rotation(NamedTuple):
    """cos and sin of every pair at every token, with all that is needed to apply them to a head.

    ``cos`` and ``sin`` are ``[S, P]`` or ``[B, S, P]``; with ``per_head`` they are ``[(B,) H, S, P]``. ``interleaved``
    and ``trailing`` say which channels form pair ``i`` and which slice of the head turns (`phasor.pairs`).
    ``magnitude`` is the factor already inside cos and sin (the attention factor; 1 for a pure rotation). ``head_dim``
    is the width of the heads it is made for, where that is known: others are refused.

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

    @classmethod
    def at(
        cls, spec: RotarySpec, positions: Tensor, seq_len: int | None = None, *, dtype: torch.dtype = torch.float32
    ) -> "Rotation":
        """The rotation of ``spec`` at integer ``positions``, on their device.

        ``positions`` is ``[S]`` or ``[B, S]``; for a spec with ``A`` axes ``[A, S]`` or ``[A, B, S]``. Negative ones
        turn backwards. ``dtype`` is the dtype of the activations to be rotated: cos and sin are float64 for float64
        and float32 otherwise, except with ``angles="float32"``, where they are rounded as ``spec.tables`` says (name
        the dtype then, or the bits are not those of the model's code).

        Exact angles are right to 2.5e-7 for every ``|position| <= 2**31``, for cos and sin in float32.

        Raises ``ValueError`` if positions are not integers, if their rank does not fit the axes, and if the
        frequencies depend on the length of the sequence and ``seq_len`` is missing.

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
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        if spec.angles == "exact":
            cos, sin = cos_sin(phases(positions, _steps(spec, seq_len, positions.device)), wide)
        else:
            angles = _float32_angles(positions, _axis_frequencies(spec, seq_len, positions.device))
            cos, sin = angles.cos(), angles.sin()
        factor = spec.attention_factor(seq_len)
        if factor != 1.0:
            cos, sin = cos * factor, sin * factor
        if spec.angles == "float32" and spec.tables != "float32":
            cos, sin = cos.to(dtype), sin.to(dtype)
            if spec.tables == "rounded":
                cos, sin = cos.to(wide), sin.to(wide)
        return cls(cos, sin, spec.interleaved, spec.trailing, False, factor, spec.head_dim)

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
        shrink = self.magnitude**-2
        cos, sin = (self.cos, -self.sin) if shrink == 1 else (self.cos * shrink, -self.sin * shrink)
        return self._replace(cos=cos, sin=sin, magnitude=1 / self.magnitude)

    def transpose(self) -> "Rotation":
        """The adjoint: turns back and keeps the magnitude. Equal to the inverse if the magnitude is 1."""
        return self._replace(sin=-self.sin)

    def compose(self, other: "Rotation") -> "Rotation":
        """Both, one after the other: angles add, magnitudes multiply. Raises ``ValueError`` if the layouts differ."""
        if self.cos.shape[-1] != other.cos.shape[-1]:
            raise ValueError(
                f"rotations must have as many pairs to be composed, got {self.cos.shape[-1]} and {other.cos.shape[-1]}"
            )
        if self[2:5] != other[2:5]:
            raise ValueError(
                "rotations must agree in (interleaved, trailing, per_head) to be composed, "
                f"got {self[2:5]} and {other[2:5]}"
            )
        return self._replace(
            cos=self.cos * other.cos - self.sin * other.sin,
            sin=self.sin * other.cos + self.cos * other.sin,
            magnitude=self.magnitude * other.magnitude,
        )

    def to(self, device: torch.device | str) -> "Rotation":
        """The same rotation on another device."""
        return self._replace(cos=self.cos.to(device), sin=self.sin.to(device))

    def slice(self, start: int, stop: int) -> "Rotation":
        """Tokens ``start`` to ``stop`` of the sequence, as views."""
        return self._replace(cos=self.cos[..., start:stop, :], sin=self.sin[..., start:stop, :])


def check_positions(positions: Any, spec: RotarySpec) -> Tensor:
    """Positions as int64 ``[axes, (B,) S]``, or ``ValueError``."""
    if not isinstance(positions, Tensor):
        raise ValueError(f"positions must be a tensor of integers, got {type(positions).__name__}")
    if positions.dtype.is_floating_point or positions.dtype.is_complex or positions.dtype == torch.bool:
        raise ValueError(
            f"positions must be integers, got {positions.dtype}; convert token positions with .long(), "
            "and rotate by fractional positions through Rotation.from_frequencies"
        )
    axes, shape = spec.axes.count, tuple(positions.shape)
    if axes == 1:
        if positions.ndim not in (1, 2):
            raise ValueError(f"positions must be [seq] or [batch, seq] for a spec with one axis, got shape {shape}")
        return positions.to(torch.int64).unsqueeze(0)
    if positions.ndim not in (2, 3) or positions.shape[0] != axes:
        raise ValueError(
            f"positions must be [{axes}, seq] or [{axes}, batch, seq] for a spec with {axes} axes, got shape {shape}; "
            f"for text, where all axes agree, use phasor.positions.text(positions, axes={axes})"
        )
    return positions.to(torch.int64)


def _steps(spec: RotarySpec, seq_len: int | None, device: torch.device) -> Tensor:
    return torch.tensor(_step_values(spec, seq_len), dtype=torch.int64, device=device)


def _axis_frequencies(spec: RotarySpec, seq_len: int | None, device: torch.device) -> Tensor:
    return torch.tensor(_float32_values(spec, seq_len), dtype=torch.float32, device=device)


# Exact decimals cannot be traced, so what they give is a constant of the compiled graph.
@constant
def _step_values(spec: RotarySpec, seq_len: int | None) -> tuple[tuple[int, ...], ...]:
    return axis_steps(spec, seq_len)


@constant
def _float32_values(spec: RotarySpec, seq_len: int | None) -> list[list[float]]:
    shares = torch.tensor(spec.axes.weights(spec.pairs), dtype=torch.float32, device="cpu")
    values: list[list[float]] = (float32_frequencies(spec, seq_len) * shares).tolist()
    return values


def _float32_angles(positions: Tensor, frequencies: Tensor) -> Tensor:
    at = positions.to(torch.float32)
    total = at[0].unsqueeze(-1) * frequencies[0]
    for axis in range(1, at.shape[0]):
        total = total + at[axis].unsqueeze(-1) * frequencies[axis]
    return total
