"""A way of rotating, right or wrong, and what an implementation that rotates so would give, in float64."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...rotary.kernels import reference
from ...rotary.layout import Layout
from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec
from .layer_kinds import Kind
from .vectors import Vectors


@dataclass(frozen=True, kw_only=True)
class RotationCase:
    """A spec, and what a spec cannot say because nobody would want it.

    ``cos_factor`` and ``sin_factor`` stand in for the attention factor; ``gain`` multiplies results and tables;
    ``coarse``: where values pass through ``dtype`` (positions, frequencies, angles, tables, results), "tf32" included;
    ``unit`` multiplies the angles; ``exchanged``: cos where sin must be; ``formula``: of FORMULAS;
    ``frequencies``: other ones than the spec's, [P]; ``moved``: how the channels of the result are permuted (None,
    "to halves" or "to interleaved"); ``crossed``: tables in the other layout than the rotation; ``shared``: one ladder
    over all heads, "split" among them or as one "wide" head; ``rolled``: by how many places the heads of the result
    have moved; ``rotated``: whether anything rotates.
    """

    spec: RotarySpec
    positions: Tensor  # [A, S]
    cos_factor: float
    sin_factor: float
    seq_len: int | None = None
    log_scale: Tensor | None = None
    frequencies: Tensor | None = None
    gain: Tensor | float = 1.0  # or one per token, [S, 1]
    coarse: tuple[str, ...] = ()
    dtype: torch.dtype | str = torch.bfloat16
    unit: float = 1.0
    exchanged: bool = False
    formula: str = ""
    moved: str | None = None
    crossed: bool = False
    shared: str | None = None
    rolled: int = 0
    rotated: bool = True
    old: Tensor | None = None  # [A, S], of keys that move by ``positions``

    def replace(self, **changes: object) -> "RotationCase":
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    @cached_property
    def angles(self) -> Tensor:
        """Radians of the first members, ``[S, P]``."""
        return radians(self)


FORMULAS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "first overwritten": lambda a, b, cos, sin: (u := a * cos - b * sin, b * cos + u * sin),
    "second overwritten": lambda a, b, cos, sin: (a * cos - (v := b * cos + a * sin) * sin, v),
    "no minus": lambda a, b, cos, sin: (a * cos + b * sin, b * cos + a * sin),
    "two minuses": lambda a, b, cos, sin: (a * cos - b * sin, b * cos - a * sin),
}


def right(vectors: Vectors, kind: Kind) -> RotationCase:
    """The case without a mistake."""
    assert kind.exact is not None
    positions = vectors.tensors[f"{kind.name}.positions"]
    factor = kind.exact.attention_factor(kind.seq_len)
    return RotationCase(
        spec=kind.exact,
        positions=positions.reshape(kind.exact.axes.count, -1),
        cos_factor=factor,
        sin_factor=factor,
        seq_len=kind.seq_len,
        log_scale=vectors.tensors.get(f"{kind.name}.log_scale"),
        old=vectors.tensors[f"{kind.name}.old"].reshape(kind.exact.axes.count, -1) if kind.moved else None,
    )


@dataclass(frozen=True)
class Mistake:
    """``cause`` is one word for programs, ``text`` a sentence for people."""

    cause: str
    text: str
    change: Callable[[RotationCase], RotationCase]

    def of(self, case: RotationCase) -> RotationCase | None:
        """The case with this mistake; None where it makes no sense."""
        try:
            changed = self.change(case)
        except ValueError:
            return None
        other_width = changed.frequencies is not None and len(changed.frequencies) != changed.spec.pairs
        return None if other_width else changed


def with_spec(**changes: Any) -> Callable[[RotationCase], RotationCase]:
    """Another spec, and the attention factor that belongs to it if the scaling is another."""

    def change(case: RotationCase) -> RotationCase:
        spec = case.spec.replace(**changes)
        case = case.replace(spec=spec)
        if "scaling" in changes:
            factor = spec.attention_factor(case.seq_len)
            case = case.replace(cos_factor=factor, sin_factor=factor)
        return case

    return change


def with_fields(**changes: Any) -> Callable[[RotationCase], RotationCase]:
    return lambda case: case.replace(**changes)


def imitate(case: RotationCase, short: str, inputs: dict[str, Tensor]) -> Tensor | None:
    """The tensor called ``short`` (without its kind) as that case gives it; None for one that no case changes."""
    what = short.rpartition(".")[2]
    if what == "inv_freq":
        return _frequencies(case)
    if what == "attention_factor":
        return torch.tensor(case.cos_factor, dtype=torch.float64)
    if what.split("_")[0] in ("cos", "sin"):
        cos, sin = tables(case, second=what.endswith("second"))
        return (cos if what.startswith("cos") else sin) * case.gain
    if what.endswith("_out"):
        return _result(case, what.removesuffix("_out"), inputs)
    return None


def radians(case: RotationCase, *, second: bool = False) -> Tensor:
    """The angle of every pair at every position, float64 ``[S, P]``, before the direction."""
    spec = case.spec
    if second and spec.second is not None:
        spec = spec.replace(axes=spec.second, second=None)
        case = case.replace(spec=spec)
    frequencies = _frequencies(case)
    if case.log_scale is not None:
        frequencies = frequencies * case.log_scale.double().exp()
    shares = torch.tensor(spec.axes.weights(spec.pairs), dtype=torch.float64) * frequencies
    at = _rounded(case.positions.double() * spec.position_scale, "positions", case)
    return _rounded(torch.einsum("as,ap->sp", at, shares), "angles", case) * case.unit


def tables(case: RotationCase, *, second: bool = False) -> tuple[Tensor, Tensor]:
    """cos and sin, float64 ``[S, P]``, factors and direction inside."""
    return tables_at(case, radians(case, second=True) if second else case.angles)


def spread(case: RotationCase, what: str) -> Tensor:
    """The size of the angle behind each element of a tensor, ``[S, P]`` or ``[S, D]``: its error grows with it."""
    size = case.replace(positions=case.positions.abs())
    angles = radians(size, second=what.endswith("second")).abs()
    if case.spec.second is not None:
        angles = torch.maximum(angles, radians(size, second=True).abs())
    if not what.endswith("_out"):
        return angles
    if case.shared:  # each head has angles of its own: the largest bounds them
        return angles.max(-1, keepdim=True).values.expand(-1, case.spec.head_dim)
    layouts = [case.spec.layout, case.spec.layout.written()]
    if case.crossed:
        layouts.append(_other_layout(case.spec.layout))
    rest = angles.new_zeros(len(angles), case.spec.head_dim)
    wide = torch.stack([layout.within(rest, layout.join(angles, angles)) for layout in layouts]).max(0).values
    return wide[..., _moved(case)] if case.moved else wide


def tables_at(case: RotationCase, angles: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin of these angles, factors and direction inside."""
    cos, sin = angles.cos() * case.cos_factor, angles.sin() * case.sin_factor
    cos, sin = (sin, cos) if case.exchanged else (cos, sin)
    return _rounded(cos, "tables", case), _rounded(-sin if case.spec.reverse else sin, "tables", case)


def _frequencies(case: RotationCase) -> Tensor:
    own = case.spec.inv_freq(case.seq_len) if case.frequencies is None else case.frequencies
    return _rounded(own, "frequencies", case)


def _result(case: RotationCase, target: str, inputs: dict[str, Tensor]) -> Tensor:
    if target.endswith("_grad"):
        return _rounded(_gradient(case, target.removesuffix("_grad"), inputs[target]), "results", case)
    x = inputs[target].double()
    if case.rotated:
        x = _rotated(case, target, x)
    if case.moved:
        x = x[..., _moved(case)]
    return _rounded(x.roll(case.rolled, 1) * case.gain, "results", case)


def _gradient(case: RotationCase, target: str, given: Tensor) -> Tensor:
    """Of the result at ``given``: the same whatever was rotated, for the result is linear in it."""
    x = torch.zeros_like(given, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        (found,) = torch.autograd.grad(_result(case, target, {target: x}), x, given.double())
    return found


def _moved(case: RotationCase) -> list[int]:
    """Where the channels of the result come from."""
    halves = dataclasses.replace(case.spec.layout, interleaved=False, blocks=1, permuted=False)
    interleaved = dataclasses.replace(halves, interleaved=True)
    return interleaved.permutation(halves) if case.moved == "to halves" else halves.permutation(interleaved)


def _rotated(case: RotationCase, target: str, x: Tensor) -> Tensor:
    spec = case.spec
    if case.shared:
        return _over_all_heads(case, target, x)
    cos, sin = tables(case)
    if case.crossed:
        return _crossed(x, cos, -sin if target == "output" else sin, spec.layout)
    if case.formula:
        pair = FORMULAS[case.formula](*spec.layout.split(x), cos, -sin if target == "output" else sin)
        return spec.layout.within(x, spec.layout.written().join(*pair))
    second = tables(case, second=True) if spec.second is not None else None
    rotation = Rotation(cos=cos, sin=sin, layout=spec.layout, second=second)
    rotation = rotation.transpose() if target == "output" else rotation
    return reference.rotated(x, rotation.cos, rotation.sin, rotation.layout, second=rotation.second)


def _crossed(x: Tensor, cos: Tensor, sin: Tensor, layout: Layout) -> Tensor:
    """Each channel times the cos of the pair that it would have in the other layout, and so with sin."""
    other = _other_layout(layout)
    a, b = layout.split(x)
    wide_cos, wide_sin = other.join(cos, cos), other.join(sin, sin)
    read = layout.read()
    return layout.within(x, layout.turned(x) * wide_cos + read.join(-b, a) * wide_sin)


def _other_layout(layout: Layout) -> Layout:
    return dataclasses.replace(layout, interleaved=not layout.interleaved, blocks=1, permuted=False)


def _over_all_heads(case: RotationCase, target: str, x: Tensor) -> Tensor:
    """One ladder over the width of all heads: each head gets its share of it, or all are rotated as one wide head."""
    heads, layout = x.shape[1], case.spec.layout
    width = heads * layout.rotary_dim
    wide = case.replace(spec=case.spec.replace(head_dim=width, rotary_dim=width, trailing=False))
    cos, sin = tables(wide)
    sin = -sin if target == "output" else sin
    if case.shared == "split":
        cos, sin = (torch.unflatten(t, -1, (heads, -1)).transpose(0, 1) for t in (cos, sin))
        return reference.rotated(x, cos, sin, layout)
    flat = x.transpose(1, 2).flatten(-2)
    flat = reference.rotated(flat, cos, sin, dataclasses.replace(layout, head_dim=width, rotary_dim=width))
    return torch.unflatten(flat, -1, (heads, -1)).transpose(1, 2)


def _rounded(x: Tensor, where: str, case: RotationCase) -> Tensor:
    if where not in case.coarse:
        return x
    return x.to(case.dtype).double() if isinstance(case.dtype, torch.dtype) else _tf32(x)


def _tf32(x: Tensor) -> Tensor:
    """As tensor cores take the operands of a float32 product: 10 bits of mantissa, ties away from zero."""
    bits = x.float().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32).double()
