"""Keys that were rotated already: moved, given another spec's angle, or rotated back. Each in one rotation."""

from typing import Any

import torch
from torch import Tensor

from ..kernels import Angles, choose
from ..kernels.native import kernel as native
from ..spec import RotarySpec
from ..tables import check_positions
from .formats import TensorFormat, order_of
from .input_checks import check_fits, check_shape, check_tensor
from .outputs import check_out
from .relative_rotation import between, check_distance, check_moves, moving_by, undoing


def shift(
    k: Tensor,
    by: int | float | tuple[int | float, ...],
    spec: RotarySpec,
    *,
    log_scale: Tensor | None = None,
    tensor_format: TensorFormat = "bhsd",
    kernel: str = "auto",
    out: Tensor | None = None,
) -> Tensor:
    """Rotated keys moved by one distance: ``R(p) x -> R(p + by) x`` for every token, head and row. A new tensor.

    One angle for all tokens: cos and sin of one position, which broadcast, so no positions are asked for. ``by`` is a
    number, or one for each axis of the spec. The rotation has magnitude 1: YaRN's factor, which the keys have already,
    stays as it is. ``out`` may be ``k`` (in place). Each call rounds once more: move keys that were moved before from
    where they were first rotated (`phasor.caches.KeyLedger`).

    ``k`` as `apply_rotary` takes it, as the rotation wrote it (`Layout.written`): for latent attention the one rotary
    head. The rest as in `apply_rotary`; gradients pass.

    Raises ``ValueError`` for a spec that has no inverse or depends on a length (`RotarySpec.at_length`), for one with
    angles that are not exact, which depend on where a key stands (`reposition`), and for a move beyond 2**31.
    Source: the relative law, RoFormer, arXiv:2104.09864, eq. 16: ``R(p + d) = R(d) R(p)``.

    >>> from phasor import Rotation, apply_rotary
    >>> spec, x = RotarySpec(head_dim=2, frequencies=(torch.pi / 2,)), torch.tensor([[[1.0, 0.0], [1.0, 0.0]]])
    >>> shift(apply_rotary(x, Rotation.at(spec, torch.tensor([0, 1]))), 1, spec)[0].round().tolist()  # a quarter turn
    [[0.0, 1.0], [-1.0, 0.0]]
    """
    check_moves("spec", spec)
    if spec.angles != "exact":
        raise ValueError(
            f"spec must have exact angles for shift, got {spec.angles} angles, whose differences depend on each key's "
            "position: use reposition(k, old, new, spec), or spec.replace(angles='exact')"
        )
    check_tensor("k", k)
    order_of(tensor_format)
    check_shape("k", k, tensor_format)
    if k.shape[-1] != spec.head_dim:
        raise ValueError(f"k must have the {spec.head_dim} channels of the spec's head_dim, got shape {tuple(k.shape)}")
    distance = _distance(by, spec, k.device)
    check_distance(torch.zeros_like(distance), distance, "positions before and after a shift")
    # every head of every token is a row of its own, so one position serves all of them
    rows, into = _rows(k, spec), None if out is None else _rows(out, spec)
    done = rotated_by(rows, moving_by(spec, distance, log_scale, k.dtype), "bhsd", kernel, into)
    return done.view(k.shape) if out is None else out


def reposition(
    k: Tensor,
    old: Tensor,
    new: Tensor,
    spec: RotarySpec,
    *,
    log_scale: Tensor | None = None,
    tensor_format: TensorFormat = "bhsd",
    kernel: str = "auto",
    out: Tensor | None = None,
) -> Tensor:
    """Rotated keys moved each from its ``old`` position to its ``new`` one: ``R(old) x -> R(new) x``. A new tensor.

    ``old`` and ``new`` are positions as `Rotation.at` takes them, of one shape. One rotation by ``new - old``, formed
    in integers and of magnitude 1. Angles that are not exact are those of the model's own code at both places. The rest
    as in `shift`.

    >>> from phasor import Rotation, apply_rotary
    >>> spec, x, old = RotarySpec(head_dim=4), torch.randn(1, 3, 4), torch.tensor([7, 8, 9])
    >>> moved = reposition(apply_rotary(x, Rotation.at(spec, old)), old, torch.tensor([0, 2, 1]), spec)
    >>> bool((moved - apply_rotary(x, Rotation.at(spec, torch.tensor([0, 2, 1])))).abs().max() < 1e-5)
    True
    """
    check_moves("spec", spec)
    check_tensor("k", k)
    for positions in (old, new):
        check_positions(positions, spec)
    check_distance(old, new, "old and new")
    return moved(k, spec, old, spec, new, log_scale, tensor_format, kernel, out)


def change_spec(
    k: Tensor,
    positions: Tensor,
    old: RotarySpec,
    new: RotarySpec,
    *,
    log_scale: Tensor | None = None,
    tensor_format: TensorFormat = "bhsd",
    kernel: str = "auto",
    out: Tensor | None = None,
) -> Tensor:
    """Keys at ``positions`` rotated by ``old`` as if by ``new``: ``A R(p) x -> A' R'(p) x``. A new tensor.

    For a regime that must change under a cache: a longer context, another base. One rotation by the difference of both
    phases, of magnitude ``A' / A``. The rest as in `shift`; both must hold the pairs of a head alike.

    >>> from phasor import Rotation, apply_rotary
    >>> old, at = RotarySpec(head_dim=2, frequencies=(torch.pi / 2,)), torch.tensor([1])
    >>> k = apply_rotary(torch.tensor([[[1.0, 0.0]]]), Rotation.at(old, at))
    >>> change_spec(k, at, old, old.replace(frequencies=(torch.pi,))).round().tolist()  # from 90 degrees to 180
    [[[-1.0, 0.0]]]
    """
    check_moves("old", old)
    check_moves("new", new)
    check_alike(old, new)
    check_tensor("k", k)
    check_positions(positions, old)
    return moved(k, old, positions, new, positions, log_scale, tensor_format, kernel, out)


def unrotate(
    k: Tensor,
    positions: Tensor,
    spec: RotarySpec,
    *,
    log_scale: Tensor | None = None,
    tensor_format: TensorFormat = "bhsd",
    kernel: str = "auto",
    out: Tensor | None = None,
) -> Tensor:
    """The raw keys: ``A R(p) x -> x``, without position and without factor, as the rotation read them. A new tensor.

    They are rounded twice: raw keys that are kept before their rotation are better. The rest as in `shift`.

    >>> from phasor import Rotation, apply_rotary
    >>> spec = RotarySpec(head_dim=2, frequencies=(torch.pi / 2,))
    >>> unrotate(torch.tensor([[[0.0, 1.0]]]), torch.tensor([1]), spec).round().tolist()
    [[[1.0, 0.0]]]
    """
    check_moves("spec", spec)
    check_tensor("k", k)
    check_positions(positions, spec)
    return rotated_by(k, undoing(spec, positions, log_scale, k.dtype), tensor_format, kernel, out)


def check_alike(old: RotarySpec, new: RotarySpec) -> None:
    """``ValueError`` unless keys of one are keys of the other but for their angle."""
    one, other = ((s.layout.written(), s.axes.count, s.coordinates) for s in (old, new))
    if one != other:
        raise ValueError(f"old and new must agree in (layout, axes, coordinates), got {one} and {other}")


def _distance(by: Any, spec: RotarySpec, device: torch.device) -> Tensor:
    """``[1]``, or ``[axes, 1]``."""
    each = by if isinstance(by, tuple) else (by,)
    kind = (int, float) if spec.coordinates == "real" else (int,)
    if len(each) != spec.axes.count or not all(isinstance(d, kind) and not isinstance(d, bool) for d in each):
        numbers = "a number" if spec.coordinates == "real" else "an integer"
        wanted = numbers if spec.axes.count == 1 else f"a tuple with {numbers} for each of {spec.axes.count} axes"
        raise ValueError(f"by must be {wanted}, the same for all tokens, got {by!r}")
    if any(abs(d) > 2**62 for d in each):
        raise ValueError(f"by must be at most 2**31, got {by!r}")
    distance = torch.tensor(each, dtype=torch.float64 if spec.coordinates == "real" else torch.int64, device=device)
    return distance if len(each) == 1 else distance[:, None]


def _rows(x: Tensor, spec: RotarySpec) -> Tensor:
    """``[..., rows, 1, head_dim]``, a view."""
    if x.is_contiguous():
        return x.view(-1, 1, spec.head_dim)
    return x.unsqueeze(-2)


def moved(
    k: Tensor,
    old: RotarySpec,
    at: Tensor,
    new: RotarySpec,
    to: Tensor,
    log_scale: Tensor | None = None,
    tensor_format: str = "bhsd",
    kernel: str = "auto",
    out: Tensor | None = None,
) -> Tensor:
    """Keys at ``at`` of one spec, to ``to`` of another; positions and specs are checked."""
    if old != new and log_scale is None and native.is_open(kernel):
        done = native.change(k, old, at, new, to, tensor_format, out)
        if done is not None:
            return done[0]  # type: ignore[no-any-return]
    return rotated_by(k, between(old, at, new, to, log_scale, k.dtype), tensor_format, kernel, out)


def rotated_by(x: Tensor, angles: Angles, tensor_format: str, kernel: str, out: Tensor | None) -> Tensor:
    """Keys rotated by what is formed for them, checked as `apply_rotary` does."""
    order = order_of(tensor_format)
    check_fits("k", x, angles, order, tensor_format)
    pair = None if out is None else check_out(out, x, None, angles, ("k", "k"))
    return choose(kernel, x, None, angles).rotate(x, None, angles, order, pair)[0]
