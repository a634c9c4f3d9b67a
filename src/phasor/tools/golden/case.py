"""A way of rotating, right or wrong, stage by stage, and what code that rotates so would give, in float64."""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ...rotary.kernels import reference
from ...rotary.layout import Layout
from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec
from .layer_kinds import Kind
from .tensors import GRADIENTS
from .vectors import Vectors

Rounding = Callable[[Tensor], Tensor]
Inputs = dict[str, Tensor]  # what is rotated, and what comes into the backward, by target


@dataclass(frozen=True, kw_only=True)
class RotationCase:
    """A spec, and what a spec cannot say because nobody would want it: a mistake changes one of these fields.

    ``cos_factor`` and ``sin_factor`` stand in for the attention factor; ``frequencies``, ``[P]``, for the spec's;
    ``gain`` multiplies results and tables. ``rounding``: place (positions, frequencies, angles, tables, results) ->
    what is done to its values. ``wheel``: cos and sin of angles; ``rotate(case, x)``: what is made of heads;
    ``behind(case, y)``: what happens to the result.
    """

    spec: RotarySpec
    positions: Tensor  # [A, S]
    cos_factor: float
    sin_factor: float
    seq_len: int | None = None
    log_scale: Tensor | None = None
    old: Tensor | None = None  # [A, S], of keys that move by ``positions``
    frequencies: Tensor | None = None
    gain: Tensor | float = 1.0  # or one per token, [S, 1]
    rounding: Mapping[str, Rounding] = field(default_factory=dict)
    wheel: Callable[[Tensor], tuple[Tensor, Tensor]] = lambda angles: (angles.cos(), angles.sin())
    rotate: Callable[["RotationCase", Tensor], Tensor] = lambda case, x: turned(case, x)
    behind: Callable[["RotationCase", Tensor], Tensor] = lambda case, y: y
    backwards: bool = False  # as the output of attention is turned

    def replace(self, **changes: object) -> "RotationCase":
        return dataclasses.replace(self, **changes)  # type: ignore[arg-type]

    def rounded(self, place: str, x: Tensor) -> Tensor:
        return self.rounding[place](x) if place in self.rounding else x

    @cached_property
    def tables(self) -> tuple[Tensor, Tensor]:
        """cos and sin, float64 ``[S, P]``, factors and direction inside."""
        cos, sin = self.wheel(_angles(self))
        sin = -sin if self.spec.reverse else sin
        return self.rounded("tables", cos * self.cos_factor), self.rounded("tables", sin * self.sin_factor)

    @property
    def second(self) -> tuple[Tensor, Tensor] | None:
        """Those of the second members, where they rotate by other angles."""
        spec = self.spec
        return self.replace(spec=spec.replace(axes=spec.second, second=None)).tables if spec.second else None

    @property
    def turning(self) -> tuple[Tensor, Tensor]:
        """The tables as the heads need them, whichever way they turn."""
        cos, sin = self.tables
        return cos, -sin if self.backwards else sin


Change = Callable[[RotationCase], RotationCase]
Row = tuple[str, str, Change]  # what a file of mistakes yields: those of a `Mistake`


@dataclass(frozen=True)
class Mistake:
    """``cause`` is one word for programs, ``text`` a sentence for people."""

    cause: str
    text: str
    change: Change

    def of(self, case: RotationCase) -> RotationCase | None:
        """The case with this mistake; None where it makes no sense."""
        try:
            changed = self.change(case)
        except ValueError:
            return None
        other_width = changed.frequencies is not None and len(changed.frequencies) != changed.spec.pairs
        return None if other_width else changed


def with_fields(**changes: Any) -> Change:
    return lambda case: case.replace(**changes)


def with_spec(**changes: Any) -> Change:
    """Another spec, and the attention factor that belongs to it if the scaling is another."""

    def change(case: RotationCase) -> RotationCase:
        spec = case.spec.replace(**changes)
        case = case.replace(spec=spec)
        return with_factor(spec.attention_factor(case.seq_len))(case) if "scaling" in changes else case

    return change


def with_factor(value: float) -> Change:
    return with_fields(cos_factor=value, sin_factor=value)


def right(vectors: Vectors, kind: Kind) -> RotationCase:
    """The case without a mistake."""
    assert kind.exact is not None
    factor, count = kind.exact.attention_factor(kind.seq_len), kind.exact.axes.count
    return RotationCase(
        spec=kind.exact,
        positions=vectors.tensors[f"{kind.name}.positions"].reshape(count, -1),
        cos_factor=factor,
        sin_factor=factor,
        seq_len=kind.seq_len,
        log_scale=vectors.tensors.get(f"{kind.name}.log_scale"),
        old=vectors.tensors[f"{kind.name}.old"].reshape(count, -1) if kind.moved else None,
    )


def inputs_of(vectors: Vectors, kind: Kind) -> Inputs:
    names = {t: f"{kind.name}.{t}_in" for t in ("q", "k", "v", "output", *GRADIENTS.values())}
    return {t: vectors.tensors[name] for t, name in names.items() if name in vectors.tensors}


def imitate(case: RotationCase, short: str, inputs: Inputs) -> Tensor | None:
    """The tensor called ``short`` (without its kind) as that case gives it; None for one that no case changes."""
    what = short.rpartition(".")[2]
    if what == "inv_freq":
        return _frequencies(case)
    if what == "attention_factor":
        return torch.tensor(case.cos_factor, dtype=torch.float64)
    if what.split("_")[0] in ("cos", "sin"):
        tables = case.second if what.endswith("second") else case.tables
        assert tables is not None
        return tables[what.startswith("sin")] * case.gain
    return _result(case, what.removesuffix("_out"), inputs) if what.endswith("_out") else None


def spread(case: RotationCase, short: str, inputs: Inputs) -> Tensor:
    """The size of the angle behind each element of cos, sin or a result, whose error grows with it: what the case makes
    of ones where each cosine is its angle, and no sine is left. Channels that pass count one radian."""
    plain = {"cos_factor": 1.0, "sin_factor": 1.0, "gain": 1.0}
    size = case.replace(positions=case.positions.abs(), wheel=lambda angles: (angles.abs(), 0 * angles), **plain)
    return imitate(size, short.replace("sin", "cos"), {t: torch.ones_like(x) for t, x in inputs.items()})  # type: ignore[return-value]


def _frequencies(case: RotationCase) -> Tensor:
    own = case.spec.inv_freq(case.seq_len) if case.frequencies is None else case.frequencies
    return case.rounded("frequencies", own)


def _angles(case: RotationCase) -> Tensor:
    """The angle of every pair at every position, float64 ``[S, P]``, before the direction."""
    frequencies = _frequencies(case)
    if case.log_scale is not None:
        frequencies = frequencies * case.log_scale.double().exp()
    shares = torch.tensor(case.spec.axes.weights(case.spec.pairs), dtype=torch.float64) * frequencies
    at = case.rounded("positions", case.positions.double() * case.spec.position_scale)
    return case.rounded("angles", torch.einsum("as,ap->sp", at, shares))


def _result(case: RotationCase, target: str, inputs: Inputs) -> Tensor:
    if target.endswith("_grad"):  # of the result at the gradient: the same whatever was rotated, for it is linear in it
        x = torch.zeros_like(inputs[target], dtype=torch.float64, requires_grad=True)
        with torch.enable_grad():
            out = _result(case, target.removesuffix("_grad"), {target.removesuffix("_grad"): x})
            (found,) = torch.autograd.grad(out, x, inputs[target].double())
        return case.rounded("results", found)
    case = case.replace(backwards=True) if target == "output" else case
    return case.rounded("results", case.behind(case, case.rotate(case, inputs[target].double())) * case.gain)


# --- ways to rotate -------------------------------------------------------------------------------------------------


def turned(case: RotationCase, x: Tensor) -> Tensor:
    rotation = Rotation(cos=case.tables[0], sin=case.tables[1], layout=case.spec.layout, second=case.second)
    rotation = rotation.transpose() if case.backwards else rotation
    return reference.rotated(x, rotation.cos, rotation.sin, rotation.layout, second=rotation.second)


def by_formula(pair: Callable[..., tuple[Tensor, Tensor]]) -> Change:
    """``pair(a, b, cos, sin)`` in place of ``a * cos - b * sin, b * cos + a * sin``."""

    def rotate(case: RotationCase, x: Tensor) -> Tensor:
        layout = case.spec.layout
        return layout.within(x, layout.written().join(*pair(*layout.split(x), *case.turning)))

    return with_fields(rotate=rotate)


def crossed(case: RotationCase, x: Tensor) -> Tensor:
    """Each channel times the cos of the pair that it would have in the other layout, and so with sin."""
    layout = case.spec.layout
    a, b = layout.split(x)
    cos, sin = (other_pairs(layout).join(t, t) for t in case.turning)
    return layout.within(x, layout.turned(x) * cos + layout.read().join(-b, a) * sin)


def other_pairs(layout: Layout) -> Layout:
    return dataclasses.replace(layout, interleaved=not layout.interleaved, blocks=1, permuted=False)


def over_all_heads(one_head: bool) -> Callable[[RotationCase, Tensor], Tensor]:
    """One ladder over the width of all heads: all are rotated as one wide head, or each gets its share of it."""

    def rotate(case: RotationCase, x: Tensor) -> Tensor:
        heads, layout = x.shape[1], case.spec.layout
        width = heads * layout.rotary_dim
        spec = case.spec.replace(head_dim=width, rotary_dim=width, trailing=False)
        cos, sin = case.replace(spec=spec).turning
        if not one_head:
            cos, sin = (torch.unflatten(t, -1, (heads, -1)).transpose(0, 1) for t in (cos, sin))
            return reference.rotated(x, cos, sin, layout)
        wide = dataclasses.replace(layout, head_dim=width, rotary_dim=width)
        flat = reference.rotated(x.transpose(1, 2).flatten(-2), cos, sin, wide)
        return torch.unflatten(flat, -1, (heads, -1)).transpose(1, 2)

    return rotate
