"""From a spec and positions to cos and sin: integer phases, or floating-point angles as models form them."""

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch import Tensor

from ..support.checks import whole
from ..support.tracing import capturing, constant, readable, watched
from . import stacked
from .phase import cos_sin, phases
from .spec import RotarySpec, axis_steps, product_dtype

T = TypeVar("T")

_IN_GRAPHS: dict[int, Any] = {}  # steps and frequencies that a CUDA graph reads: it keeps their addresses only


def check_positions(positions: Any, spec: RotarySpec) -> tuple[Tensor, ...]:
    """Positions as one ``[(B,) S]`` per axis, integers or real as the spec has them, or ``ValueError``.

    Integers are int64, or int32 as they came: to convert them would be a launch of its own on a GPU, and whatever
    multiplies them by a step of int64 does so in 64 bits.
    """
    real = spec.coordinates == "real"
    kind = "real numbers" if real else "integers"
    if not isinstance(positions, Tensor):
        raise ValueError(f"positions must be a tensor of {kind}, got {type(positions).__name__}")
    fractional = positions.dtype.is_floating_point
    if positions.dtype.is_complex or positions.dtype == torch.bool or (fractional and not real):
        raise ValueError(
            f"positions must be {kind}, got {positions.dtype}; convert token positions with .long(), and rotate by "
            "fractional positions with a spec of coordinates='real' or Rotation.from_frequencies"
        )
    if positions.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(f"positions must be float32 or float64 (half precision rounds them), got {positions.dtype}")
    if positions.dtype == torch.uint64:
        raise ValueError(
            "positions must be integers of at most 63 bits, got torch.uint64; convert with .to(torch.int64)"
        )
    positions = positions if real or positions.dtype in (torch.int32, torch.int64) else positions.to(torch.int64)
    axes, shape = spec.axes.count, tuple(positions.shape)
    if axes == 1:
        if positions.ndim not in (1, 2):
            raise ValueError(f"positions must be [seq] or [batch, seq] for a spec with one axis, got shape {shape}")
        return (positions,)
    if positions.ndim not in (2, 3) or positions.shape[0] != axes:
        raise ValueError(
            f"positions must be [{axes}, seq] or [{axes}, batch, seq] for a spec with {axes} axes, got shape {shape}; "
            f"for text, where all axes agree, use phasor.positions.text(positions, axes={axes})"
        )
    return positions.unbind(0)


def check_rows(positions: Any, rows: int, batched: bool) -> None:
    """``ValueError`` unless ``positions`` are rows of a table: ``[S]``, or ``[B, S]`` where it is not ``batched``."""
    if not isinstance(positions, Tensor) or positions.dtype not in (torch.int64, torch.int32):
        got = positions.dtype if isinstance(positions, Tensor) else type(positions).__name__
        raise ValueError(f"positions must be an int64 or int32 tensor of rows, got {got}")
    if positions.ndim not in ((1,) if batched else (1, 2)):
        kind = "[seq] for a rotation with a batch" if batched else "[seq] or [batch, seq]"
        raise ValueError(f"positions must be {kind}, got shape {tuple(positions.shape)}")
    if positions.device.type == "cpu" and readable(positions) and positions.numel():
        low, high = (int(v) for v in positions.aminmax())
        if low < 0 or high >= rows:
            raise ValueError(f"positions must be rows 0 to {rows - 1} of the rotation, got {low if low < 0 else high}")


def rows_at(table: Tensor, positions: Tensor, per_head: bool) -> Tensor:
    """Rows of a table ``[(B,) (H,) S, columns]``: ``[S]`` of them, or ``[B, S]``."""
    check_rows(positions, table.shape[-2], batched=table.ndim > 2 + per_head)
    rows = table.index_select(-2, positions.flatten())
    if positions.ndim == 1:
        return rows
    rows = torch.unflatten(rows, -2, positions.shape)
    return rows.transpose(0, 1) if per_head else rows


def check_log_scale(log_scale: Any, spec: RotarySpec) -> None:
    if not spec.learned:
        raise ValueError("log_scale belongs to a spec with learned=True; this one has fixed frequencies")
    if not isinstance(log_scale, Tensor) or not log_scale.is_floating_point() or log_scale.shape != (spec.pairs,):
        got = f"{log_scale.dtype} {tuple(log_scale.shape)}" if isinstance(log_scale, Tensor) else repr(log_scale)
        raise ValueError(
            f"log_scale must be the trained tensor [{spec.pairs}] of a spec with learned frequencies, got {got}"
        )


class Phases:
    """What is asked of a spec: the angles of some tokens, checked and not yet formed. Arguments: see `Rotation.at`.

    Some kernels form cos and sin themselves, while they rotate; `tables` forms them for the others.
    """

    per_head = False

    def __init__(
        self,
        spec: RotarySpec,
        positions: Tensor,
        seq_len: int | None = None,
        log_scale: Tensor | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self.positions = check_positions(positions, spec)
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
        self.spec, self.log_scale, self.dtype = spec, log_scale, dtype
        self.seq_len = seq_len if spec.length_dependent else None  # or a compiler would ask what it is, for each length
        self.layout, self.second = spec.layout, spec.second
        self.promoted = spec.angles != "exact" and spec.tables == "promoted"
        self.learns = any(t is not None and t.requires_grad for t in (log_scale, *self.positions))

    @property
    def of_steps(self) -> bool:
        """Whether the angles are integer phases: sums of positions times steps."""
        return self.spec.angles == "exact" and self.spec.coordinates == "integer" and self.log_scale is None

    def angles(self, *, second: bool = False) -> Tensor:
        """The angles as floating-point numbers, for specs whose angles are not integer phases."""
        return _float_angles(self.spec, self.positions, self.seq_len, self.log_scale, second)

    def tables(self, *, second: bool = False) -> tuple[Tensor, Tensor]:
        """cos and sin, with direction and magnitude, rounded as the spec says; those of ``second`` members if asked."""
        spec, seq_len, positions, dtype = self.spec, self.seq_len, self.positions, self.dtype
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        if self.of_steps:
            step = steps_of(spec, seq_len, second, positions[0].device)
            if wide == torch.float32 and not watched() and stacked.is_better(positions[0], spec.pairs):
                cos, sin = stacked.cos_sin(positions, step)
            else:
                cos, sin = cos_sin(phases(positions, step), wide)
        else:
            angles = self.angles(second=second)
            cos, sin = angles.cos(), angles.sin()
            in_float64 = spec.angles == spec.tables == "float64"  # formed and multiplied so: nothing rounds between
            if angles.dtype == torch.float64 and not in_float64:
                cos, sin = cos.to(wide), sin.to(wide)
        if spec.reverse:
            sin = -sin
        factor = spec.attention_factor(seq_len)
        if factor != 1.0:
            cos, sin = cos * factor, sin * factor
        if spec.angles == "exact":
            return _as_one(cos, sin)
        return _rounded(spec, cos, dtype, wide), _rounded(spec, sin, dtype, wide)


def _as_one(cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
    """The same; to a compiler for GPUs they are one tensor, which it writes once, and then fuses what rotates by it.

    Left to itself it forms half of them again wherever they are used, and writes q and k in float32 in between.
    """
    if torch.compiler.is_compiling() and cos.device.type != "cpu":
        cos, sin = torch.stack((cos, sin)).unbind(0)
    return cos, sin


def _rounded(spec: RotarySpec, table: Tensor, dtype: torch.dtype, wide: torch.dtype) -> Tensor:
    if spec.tables in ("activation", "rounded") and table.dtype != dtype:
        table = table.to(dtype)
    if spec.tables == "rounded" and table.dtype != wide:
        table = table.to(wide)
    return table.double() if spec.tables == "float64" else table


def learned_angles(positions: Tensor, inv_freq: Tensor) -> Tensor:
    """``[(B,) (H,) S, P]`` sums over axes of position times frequency, in the dtype of ``inv_freq``; gradients pass."""
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
    at = positions.to(inv_freq.dtype)
    if inv_freq.ndim == 3:
        at = at.unsqueeze(-2)
    total = at[0].unsqueeze(-1) * inv_freq[..., 0, :].unsqueeze(-2)
    for a in range(1, axes):
        total = total + at[a].unsqueeze(-1) * inv_freq[..., a, :].unsqueeze(-2)
    return total


def _float_angles(
    spec: RotarySpec, positions: Sequence[Tensor], seq_len: int | None, log_scale: Tensor | None, second: bool
) -> Tensor:
    """Angles in float32 or float64, as the spec says, in the order of operations of the models."""
    dtype = product_dtype(spec)
    frequencies = frequencies_of(spec, seq_len, second, dtype, positions[0].device)
    if log_scale is not None:
        scale = log_scale.to(dtype).exp()
        frequencies = [f * scale for f in frequencies]
    at = [p.to(dtype) for p in positions]
    if spec.position_scale != 1:
        at = [p * spec.position_scale for p in at]
    total = at[0].unsqueeze(-1) * frequencies[0]
    for axis in range(1, len(at)):
        total = total + at[axis].unsqueeze(-1) * frequencies[axis]
    return total.to(torch.float32) if spec.angles == "float64_rounded" else total


def steps_of(spec: RotarySpec, seq_len: int | None, second: bool, device: torch.device) -> Sequence[Tensor]:
    """Of each axis ``[P]`` int64, on the device once per spec: copying them over would make every call wait for it.

    They are rows of one tensor ``[axes, P]``, which torch.compile leaves in memory. A short row it would write into its
    code, and a C++ compiler that sees positions too, as those of `torch.arange`, then believes that no product wraps.
    """
    if not watched():
        return _for_graphs(_kept_steps(spec.key, seq_len, second, device), device)
    return torch.tensor(_step_values(spec.key, seq_len, second), dtype=torch.int64, device=device).unbind(0)


@lru_cache(maxsize=512)
def _kept_steps(key: str, seq_len: int | None, second: bool, device: torch.device) -> tuple[Tensor, ...]:
    with torch.inference_mode(False):  # what is made there could not take part in a gradient later
        return torch.tensor(_step_values(key, seq_len, second), dtype=torch.int64, device=device).unbind(0)


def frequencies_of(
    spec: RotarySpec, seq_len: int | None, second: bool, dtype: torch.dtype, device: torch.device
) -> Sequence[Tensor]:
    """Of each axis ``[P]``, likewise."""
    if not watched():
        return _for_graphs(_kept_frequencies(spec.key, seq_len, second, dtype, device), device)
    return torch.tensor(_axis_frequencies(spec.key, seq_len, second), dtype=dtype, device=device).unbind(0)


@lru_cache(maxsize=512)
def _kept_frequencies(
    key: str, seq_len: int | None, second: bool, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, ...]:
    with torch.inference_mode(False):
        return torch.tensor(_axis_frequencies(key, seq_len, second), dtype=dtype, device=device).unbind(0)


def _for_graphs(kept: T, device: torch.device) -> T:
    """The same, held for good if a CUDA graph is being captured."""
    if capturing(device):
        _IN_GRAPHS[id(kept)] = kept
    return kept


# Exact decimals cannot be traced, so what they give is a constant of the compiled graph.
@constant
def _step_values(key: str, seq_len: int | None, second: bool) -> tuple[tuple[int, ...], ...]:
    return axis_steps(spec_of(key, second), seq_len)


@constant
def _axis_frequencies(key: str, seq_len: int | None, second: bool) -> list[list[float]]:
    spec = spec_of(key, second)
    dtype = product_dtype(spec)
    shares = torch.tensor(spec.axes.weights(spec.pairs), dtype=dtype, device="cpu")
    values: list[list[float]] = (spec.inv_freq(seq_len).to(dtype) * shares).tolist()
    return values


@lru_cache(maxsize=512)
def spec_of(key: str, second: bool = False) -> RotarySpec:
    """The spec of a key, or that of its second members."""
    spec = RotarySpec.from_dict(json.loads(key))
    return spec.replace(axes=spec.second, second=None) if second else spec
