"""What each argument of a function that rotates is, by the values it had in one call, and a stand-in that takes them.

Heads are what turns. They turn by cos and sin, in tensors of their own or in one; by angles, of which the function
forms cos and sin; or by positions, of which it forms everything. What else it is given must be plain values: for others
than those that were seen the model's own function runs.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from ...eye.layout import Placed
from ...eye.operator import Operator
from ...rotary.layout import Layout
from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec
from .functions import SeenCall
from .report import COMPLEX
from .rotate_function import RotateFunction
from .tables import Form, layout_of_table

CLOSE = 0.02  # of the largest: tables in bfloat16
Path = tuple[str | int, ...]  # a parameter, then indices into what it was given
Take = Path | Literal["first"] | None
Order = Literal["bhsd", "bshd", "sbhd", "thd", "nsd"]  # "nsd": heads and batch are one axis
TOKENS: dict[Order, int] = {"bhsd": -2, "bshd": -3, "sbhd": -4, "thd": -3, "nsd": -2}
INLINE = "its tables are formed where it rotates"
MORE = "it does more than rotate, or otherwise than phasor"
PLAIN = (bool, int, float, str, type(None), torch.dtype)


@dataclass(frozen=True)
class Given:
    """The arguments of a function that rotates: plain data.

    - ``names``: its parameters; ``plain``: the values that those have which are neither heads nor tables.
    - ``heads``: what turns, each a result, in that order; ``many``: whether results come in a tuple.
    - ``by``: what they turn by: ``(cos, sin)``, ``(angles,)``, or ``(positions,)`` with ``spec``.
    - ``tokens``: the axis of the tables that holds them, from the end; ``take``: which of a longer table's tokens: the
      ``"first"`` ones, or those at positions in another argument. ``rounded``: whether what is formed of angles or
      positions has the dtype of the heads. ``transposed``: axes 1 and 2 of a result are those of the heads exchanged.
    """

    names: tuple[str, ...]
    plain: tuple[tuple[str, Any], ...]
    heads: tuple[Path, ...]
    by: tuple[Path, ...]
    order: Order
    tokens: int = -2
    many: bool = False
    spec: RotarySpec | None = None
    rounded: bool = False
    transposed: bool = False
    take: Take = None

    def stand_in(self, function: RotateFunction, own: Callable, takes_self: bool) -> Callable:
        """Takes and returns what the model's ``own`` function does; ``function`` says how pairs lie and are rounded."""
        rotate = function.rotating()
        order = None if self.order == "nsd" else self.order

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(self.names, args[takes_self:], strict=False)) | kwargs
            tables = self._tables(given)
            if tables is None:
                return own(*args, **kwargs)
            heads = [at(given, path) for path in self.heads]
            cos, sin = (t.to(heads[0].dtype) for t in tables) if self.rounded else tables
            if order is None:
                heads = [x.unsqueeze(1) for x in heads]
            turned: list[Any] = [
                y
                for i in range(0, len(heads), 2)
                for y in rotate(heads[i], heads[i + 1] if i + 1 < len(heads) else None, cos, sin, order or "bhsd")
            ]
            if order is None:
                turned = [None if y is None else y.squeeze(1) for y in turned]
            if self.transposed:
                turned = [None if y is None else y.transpose(1, 2) for y in turned]
            return tuple(turned[: len(heads)]) if self.many else turned[0]

        return stand_in

    def _tables(self, given: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """cos and sin ``[tokens, columns]`` or ``[batch, tokens, columns]``; None for a call of another kind."""
        if any(name in given and given[name] != value for name, value in self.plain):
            return None
        if self.spec is not None:
            positions = at(given, self.by[0])
            formed = Rotation.at(self.spec, positions)
            return formed.cos, formed.sin
        first, last = (reduced(at(given, path), self.tokens) for path in (self.by[0], self.by[-1]))
        if first is None or last is None:
            return None
        if self.take is not None:
            tokens = at(given, self.heads[0]).shape[TOKENS[self.order]]
            rows = slice(tokens) if self.take == "first" else at(given, self.take)
            first, last = first[rows], last[rows]
        return (first, last) if len(self.by) > 1 else (first.cos(), first.sin())


def at(given: Mapping[str, Any], path: Path) -> Any:
    value = given[path[0]]  # type: ignore[index]
    for step in path[1:]:
        value = value[step]
    return value


def reduced(table: Tensor, tokens: int) -> Tensor | None:
    """``[tokens, columns]`` or ``[batch, tokens, columns]`` of a table with axes for heads; None where heads differ.

    >>> reduced(torch.zeros(1, 1, 5, 4), -2).shape, reduced(torch.zeros(2, 5, 1, 4), -3).shape
    (torch.Size([5, 4]), torch.Size([2, 5, 4]))
    """
    axis = table.ndim + tokens
    left = [i for i in range(table.ndim - 1) if i != axis and table.shape[i] != 1]
    if len(left) > 1 or (left and left[0] != 0):
        return None
    for i in reversed(range(table.ndim - 1)):
        if i != axis and i not in left:
            table = table.squeeze(i)
    return table


@dataclass(frozen=True)
class Turned:
    """What was seen of one side, in the order of its layout: cos and sin ``[tokens, pairs]``, its spec if known."""

    layout: Layout
    cos: Tensor
    sin: Tensor
    spec: RotarySpec | None = None
    positions: Tensor | None = None

    @classmethod
    def of(cls, seen: Operator, place: Placed, tokens: slice, **more: Any) -> "Turned":
        """``tokens``: those that turn."""
        own = [t[0, :, tokens].T for t in (seen.cos, seen.sin)]
        cos, sin = (torch.zeros(len(own[0]), place.layout.pairs, dtype=torch.float64) for _ in range(2))
        cos[:] = own[0].abs().max()  # of pairs that stand
        cos[:, list(place.pair_of)], sin[:, list(place.pair_of)] = own
        return cls(place.layout, cos, sin, **more)


@dataclass(frozen=True)
class NotTold:
    """Why the arguments of a call do not say how it rotates."""

    reason: str


def told(call: SeenCall, seen: Turned) -> list[tuple[Given, Form]] | NotTold:
    """What the arguments of one call may be; or why that is not known."""
    leaves = list(_leaves(call.arguments))
    tensors = {path: value for path, value in leaves if isinstance(value, Tensor)}
    if any(value.is_complex() for value in tensors.values()):
        return NotTold(COMPLEX)
    positions = [path for path, value in tensors.items() if _counts(value, seen)]
    tables = [role for path, value in tensors.items() for role in _roles(path, value, seen, positions)]
    ways = list(_ways(tables, positions, seen))
    if not ways:
        return NotTold(INLINE)
    if odd := next((p for p, v in leaves if not isinstance(v, Tensor) and (len(p) > 1 or not _plain(v))), None):
        return NotTold(f"its argument {_said(odd)} is neither a tensor nor a plain value")
    used = {role.path[: len(path)] for role in tables for path in tensors} | set(positions)
    heads = tuple(p for p, x in tensors.items() if p not in used and x.is_floating_point() and x.ndim > 2)
    if odd := next((path for path in tensors if path not in used and path not in heads), None):
        return NotTold(f"its argument {_said(odd)} is neither heads nor what they turn by")
    results = _results(call, [at(call.arguments, path) for path in heads])
    if results is None:
        return NotTold(MORE)
    many, transposed = results
    plain = tuple((str(path[0]), value) for path, value in leaves if not isinstance(value, Tensor))
    return [
        (Given(tuple(call.arguments), plain, heads, by, order, tokens, many, spec, rounded, transposed, take), form)
        for by, form, tokens, take, spec in ways
        for order in TOKENS
        for rounded in ((False, True) if len(by) == 1 else (False,))
    ]


def _leaves(value: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Tensors and all other values; a tuple with tensors in it is taken apart."""
    inside: list[tuple[str | int, Any]] = []
    if not path:
        inside = list(value.items())
    elif isinstance(value, tuple | list) and any(isinstance(v, Tensor) for v in value):
        inside = list(enumerate(value))
    for step, inner in inside:
        yield from _leaves(inner, (*path, step))
    if not inside:
        yield path, value


def _plain(value: Any) -> bool:
    return isinstance(value, PLAIN) or (isinstance(value, tuple) and all(map(_plain, value)))


def _results(call: SeenCall, heads: list[Tensor]) -> tuple[bool, bool] | None:
    """Whether there are several results, and whether they are transposed; None where they are not one for each head."""
    many = isinstance(call.result, tuple | list)
    results = list(call.result) if many else [call.result]
    if not heads or len(results) != len(heads) or not all(isinstance(r, Tensor) for r in results):
        return None
    if all(r.shape == x.shape for r, x in zip(results, heads, strict=True)):
        return many, False
    if all(r.ndim > 3 and r.transpose(1, 2).shape == x.shape for r, x in zip(results, heads, strict=True)):
        return many, True
    return None


@dataclass(frozen=True)
class Role:
    """A table in an argument: its columns' form, and the axis that holds the tokens."""

    name: Literal["cos", "sin", "angles"]
    path: Path
    form: Form
    tokens: int
    take: Take = None


def _roles(path: Path, value: Tensor, seen: Turned, positions: list[Path]) -> Iterator[Role]:
    """What a tensor is, or the two tensors that are stacked in it."""
    if value.is_floating_point():
        yield from _table(path, value, seen, positions)
        if value.ndim > 2 and value.shape[0] == 2:
            for i in range(2):
                yield from _table((*path, i), value[i], seen, positions)


def _table(path: Path, value: Tensor, seen: Turned, positions: list[Path]) -> Iterator[Role]:
    tokens, pairs = seen.cos.shape
    if value.ndim < 2 or value.shape[-1] not in (pairs, 2 * pairs):
        return
    forms: list[Form] = ["half"] if value.shape[-1] == pairs else ["doubled", "repeated"]
    forms += ["blocks"] if seen.layout.blocks > 1 and value.shape[-1] > pairs else []
    axes = (a for a in (-2, -3, -4) if -a <= value.ndim and value.shape[a] >= tokens)
    for axis, form in product(axes, forms):
        table = reduced(value.double(), axis)
        if table is None:
            continue
        take: Take = None
        table = table if table.ndim == 2 else table[0]
        if len(table) > tokens:
            take = positions[0] if positions else "first"
            table = table[:tokens] if take == "first" or seen.positions is None else table[_rows(seen, len(table))]
        split = (table, table) if form == "half" else layout_of_table(2 * pairs, form, seen.layout.blocks).split(table)
        if not torch.equal(*split):
            continue
        if _alike(split[0], seen.cos):
            yield Role("cos", path, form, axis, take)
        elif _alike(split[0], seen.sin) or _alike(split[0], -seen.sin):
            yield Role("sin", path, form, axis, take)
        elif _alike(split[0].cos(), seen.cos) and _alike(split[0].sin().abs(), seen.sin.abs()):
            yield Role("angles", path, form, axis, take)


def _rows(seen: Turned, length: int) -> Tensor:
    """The rows of a table at the positions that were seen."""
    assert seen.positions is not None
    return seen.positions.long().clamp(0, length - 1)


def _alike(a: Tensor, b: Tensor) -> bool:
    """Whether they are the same but for one positive factor."""
    factor = float((a * b).sum() / (b * b).sum().clamp(min=1e-30))
    return factor > 0 and float((a - factor * b).abs().max()) < CLOSE * float(a.abs().max())


def _counts(value: Tensor, seen: Turned) -> bool:
    if seen.positions is None or value.ndim > 2 or value.numel() != len(seen.positions):
        return False
    return torch.equal(value.flatten().double(), seen.positions)


Found = tuple[tuple[Path, ...], Form, int, Take, RotarySpec | None]


def _ways(tables: list[Role], positions: list[Path], seen: Turned) -> Iterator[Found]:
    for cos, sin in product(tables, tables):
        if (cos.name, sin.name) == ("cos", "sin") and replace(cos, name="sin", path=sin.path) == sin:
            yield (cos.path, sin.path), cos.form, cos.tokens, cos.take, None
    for angles in tables:
        if angles.name == "angles":
            yield (angles.path,), angles.form, angles.tokens, angles.take, None
    if not tables and positions and seen.spec is not None:
        yield (positions[0],), "half", -2, None, seen.spec


def _said(path: Path) -> str:
    return str(path[0]) + "".join(f"[{i}]" for i in path[1:])
