"""The rotation that moves a rotated key to another position or spec: never two tables, and never a factor twice.

A key at position ``p`` of a spec is ``A R(p) x``. To ``q`` of another spec it goes by ``(A' / A) R'(q) R(p)^-1``, whose
angle is one difference of integer phases: exact at every distance, and rounded once.
"""

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from ...support.tracing import readable
from ..kernels import Angles
from ..layout import Layout
from ..phase import cos_sin, phases
from ..rotation import Rotation
from ..scaling import AtLength
from ..spec import RotarySpec
from ..tables import Phases, steps_of

FARTHEST = 2**31  # up to which phases are right to 2.5e-7


def check_moves(name: str, spec: Any) -> None:
    """``ValueError`` unless what ``spec`` rotates can be rotated back."""
    if not isinstance(spec, RotarySpec):
        raise ValueError(f"{name} must be a RotarySpec, got {type(spec).__name__}")
    if spec.second is not None:
        raise ValueError(
            f"{name} must have an inverse, got one with second angles, which is no rotation; keep raw keys"
        )
    if spec.length_dependent:
        raise ValueError(
            f"{name} must be at one length, the one its keys were rotated for, got {spec.scaling.name} scaling "  # type: ignore[union-attr]
            f"that depends on it; give {name}.at_length(n)"
        )


def check_distance(old: Tensor, new: Tensor, names: str) -> None:
    """``ValueError`` for a move beyond 2**31 (looked at on a CPU only), or between positions of other shapes."""
    if old.shape != new.shape or old.device != new.device:
        raise ValueError(
            f"{names} must have the same shape and device, got {tuple(old.shape)} on {old.device} and "
            f"{tuple(new.shape)} on {new.device}"
        )
    if old.is_cpu and readable(old) and readable(new) and old.numel():
        if not (old.is_floating_point() or new.is_floating_point()):
            (first, last), (low, high) = ([int(end) for end in t.aminmax()] for t in (old, new))
            if max(last, high) - min(first, low) <= FARTHEST:  # the usual case, in one look at each
                return
        farthest = float((new.double() - old.double()).abs().max())
        if not farthest <= FARTHEST:
            raise ValueError(f"{names} must be at most 2**31 apart, got a move by {farthest:.0f}")


def moving_by(spec: RotarySpec, distance: Tensor, log_scale: Tensor | None, dtype: torch.dtype) -> Phases:
    """Keys of a spec with exact angles moved by ``distance``, laid out as `check_positions` has it: of magnitude 1."""
    return Phases(as_written(spec), distance, None, log_scale, dtype)


def between(
    old: RotarySpec, at: Tensor, new: RotarySpec, to: Tensor, log_scale: Tensor | None, dtype: torch.dtype
) -> Angles:
    """The rotation from position ``at`` of ``old`` to position ``to`` of ``new``."""
    if old == new and old.angles == "exact":
        number = torch.float64 if old.coordinates == "real" else torch.int64
        return moving_by(old, to.to(number) - at.to(number), log_scale, dtype)
    layout, ratio = old.layout.written(), new.attention_factor() / old.attention_factor()
    before, after = (Phases(s, p, None, _log_scale(s, log_scale), dtype) for s, p in ((old, at), (new, to)))
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    if before.of_steps and after.of_steps:
        there, back = (_signed(p) for p in (after, before))
        cos, sin = cos_sin(there - back, wide)
        cos, sin = (cos, sin) if ratio == 1 else (cos * ratio, sin * ratio)
        return Rotation(cos=cos, sin=sin, layout=layout, magnitude=ratio)
    (c, s), (x, y) = _tables(before), _tables(after)
    norm = c * c + s * s
    cos, sin = (c * x + s * y) / norm, (c * y - s * x) / norm
    return Rotation(cos=cos.to(wide), sin=sin.to(wide), layout=layout, magnitude=ratio)


def undoing(spec: RotarySpec, at: Tensor, log_scale: Tensor | None, dtype: torch.dtype) -> Rotation:
    """The rotation from position ``at`` to none, and from the factor to 1."""
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    cos, sin = _tables(Phases(spec, at, None, log_scale, dtype))
    norm = cos * cos + sin * sin
    layout: Layout = spec.layout.transposed()
    return Rotation(
        cos=(cos / norm).to(wide), sin=(-sin / norm).to(wide), layout=layout, magnitude=1 / spec.attention_factor()
    )


@lru_cache(maxsize=512)
def as_written(spec: RotarySpec) -> RotarySpec:
    """The spec of a rotation of magnitude 1 that reads and writes what ``spec`` writes."""
    scaling = spec.scaling
    if scaling is not None and spec.attention_factor() != 1:
        inner = scaling.scaling if isinstance(scaling, AtLength) else scaling
        scaling = AtLength(inner, getattr(scaling, "seq_len", None), attention=1.0)
    return spec.replace(interleaved=spec.layout.written().interleaved, permuted=False, scaling=scaling)


def _signed(of: Phases) -> Tensor:
    total = phases(of.positions, steps_of(of.spec, None, False, of.positions[0].device))
    return -total if of.spec.reverse else total


def _tables(of: Phases) -> tuple[Tensor, Tensor]:
    """cos and sin in float64: exact ones, or those that the model's own code rounds."""
    if of.spec.angles == "exact":
        of = Phases(of.spec, _joined(of), None, of.log_scale, torch.float64)
    cos, sin = of.tables()
    return cos.double(), sin.double()


def _joined(of: Phases) -> Tensor:
    return of.positions[0] if len(of.positions) == 1 else torch.stack(of.positions)


def _log_scale(spec: RotarySpec, log_scale: Tensor | None) -> Tensor | None:
    return log_scale if spec.learned else None
