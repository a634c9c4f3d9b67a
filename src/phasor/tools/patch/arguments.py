"""What each argument of a function that rotates is, by the values it had in one call, and a stand-in that takes them.

Heads are what turns. They turn by cos and sin, in tensors of their own or in one (stacked, beside each other, as
matrices, or as complex numbers); by angles, of which the function forms cos and sin; or by positions, of which it forms
everything. What else it is given must be plain values: for others than those that were seen the model's own function
runs.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ...support.tracing import transformed
from .functions import SeenCall
from .report import COMPLEX
from .rotate_function import RotateFunction, keeps
from .tables import Form, layout_of_table

CLOSE = 0.02  # of the largest: tables in bfloat16
Path = tuple[str | int, ...]  # a parameter, then indices into what it was given, or a name out of `PARTS`
Take = Path | Literal["first"] | None
Order = Literal["bhsd", "bshd", "sbhd", "thd", "nsd"]  # "nsd": heads and batch are one axis
OWN: tuple[Order, ...] = ("bhsd", "bshd")  # in which each head may have rows of its own
TOKENS: dict[Order, int] = {"bhsd": -2, "bshd": -3, "sbhd": -4, "thd": -3, "nsd": -2}
INLINE = "its tables are formed where it rotates"
ODD = "is neither"  # heads, nor what they turn by, nor a plain value: what does more than rotate is given such
MORE = "it does more than rotate, or otherwise than phasor"
PLAIN = (bool, int, float, str, type(None), torch.dtype)
STILL = 1e-6  # of a sine: the token does not turn
PARTS: dict[str | int, Callable[[Tensor], Tensor]] = {
    "left": lambda table: table.chunk(2, -1)[0],
    "right": lambda table: table.chunk(2, -1)[1],
    "cos of matrices": lambda table: table[..., 0, 0],
    "sin of matrices": lambda table: table[..., 1, 0],
    "real": lambda table: table.real,
    "imaginary": lambda table: table.imag,
}
VIEWS = "_phasor_views"  # the attribute of a table under which views of it are kept
LINE = 64  # bytes of a table that PyTorch multiplies at once
GRAIN = 32_768  # numbers that one thread of PyTorch is given at least


@dataclass(frozen=True)
class Given:
    """The arguments of a function that rotates: plain data.

    - ``names``: its parameters; ``plain``: the values that those have which are neither heads nor tables.
    - ``heads``: what turns, each a result, in that order; ``many``: whether results come in a tuple.
    - ``by``: what they turn by: ``(cos, sin)``, ``(angles,)``, or ``(positions,)`` with ``spec``.
    - ``tokens``: the axis of the tables that holds them, from the end; ``take``: which of a longer table's tokens: the
      ``"first"`` ones, or those at positions in another argument. ``rounded``: whether tables are
      rounded to the dtype of the heads. ``transposed``: axes 1 and 2 of a result are those of the heads exchanged.
    - ``own``: the axis of the tables, from the end, that holds the heads, where each has rows of its own. ``cast``: the
      dtype of the results, where it is not that of the heads. ``wide``: angles are widened before cosines are taken.
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
    own: int | None = None
    cast: torch.dtype | None = None
    wide: bool = False

    def stand_in(self, function: RotateFunction, own: Callable, takes_self: bool) -> Callable:
        """Takes and returns what the model's ``own`` function does; ``function`` says how pairs lie and are rounded."""
        rotate = function.rotating()
        order = "bhsd" if self.order == "nsd" or self.own else self.order

        def stand_in(*args: Any, **kwargs: Any) -> Any:
            given = dict(zip(self.names, args[takes_self:], strict=False)) | kwargs
            tables = self._tables(given)
            if tables is None:
                return own(*args, **kwargs)
            heads = [at(given, path) for path in self.heads]
            cos, sin = (t.to(heads[0].dtype) for t in tables) if self.rounded else tables
            if self.own:
                cos, sin = (t.expand(len(heads[0]), *t.shape[-3:]).flatten(0, 1) for t in (cos, sin))
            folded = [self._folded(x) for x in heads]
            turned: list[Any] = [
                y
                for i in range(0, len(heads), 2)
                for y in rotate(folded[i], folded[i + 1] if i + 1 < len(heads) else None, cos, sin, order)
            ]
            results = [self._unfolded(y, x) for y, x in zip(turned, heads, strict=False)]
            return tuple(results) if self.many else results[0]

        return stand_in

    def _folded(self, x: Tensor) -> Tensor:
        """Heads as `RotateFunction` takes them: those with tables of their own are sequences of one head."""
        if self.order == "nsd":
            return x.unsqueeze(1)
        if not self.own:
            return x
        return (x if self.order == "bhsd" else x.transpose(1, 2)).flatten(0, 1).unsqueeze(1)

    def _unfolded(self, y: Tensor, x: Tensor) -> Tensor:
        """A result as the model's function gives it for the heads ``x``."""
        if self.order == "nsd":
            y = y.squeeze(1)
        elif self.own:
            y = torch.unflatten(y.squeeze(1), 0, (len(x), -1))
            y = y if self.order == "bhsd" else y.transpose(1, 2)
        y = y.transpose(1, 2) if self.transposed else y
        return y if self.cast is None else y.to(self.cast)

    def _tables(self, given: Mapping[str, Any]) -> tuple[Tensor, Tensor] | None:
        """cos and sin as `reduced` gives them; None for a call of another kind."""
        if any(name in given and given[name] != value for name, value in self.plain):
            return None
        heads = [at(given, path) for path in self.heads]
        if self.by[0][-1] == "real" and not in_whole_lines(at(given, self.by[0][:-1]), heads):
            return None
        if self.spec is not None:
            positions = at(given, self.by[0])
            formed = Rotation.at(self.spec, positions)
            return formed.cos, formed.sin
        first, last = self._reduced(given)
        if first is None or last is None:
            return None
        if self.take is not None:
            tokens = heads[0].shape[TOKENS[self.order]]
            rows = slice(tokens) if self.take == "first" else at(given, self.take)
            first, last = first[rows], last[rows]
        first = first.float() if self.wide else first
        return (first, last) if len(self.by) > 1 else (first.cos(), first.sin())

    def _reduced(self, given: Mapping[str, Any]) -> tuple[Tensor | None, ...]:
        """cos and sin, `reduced` once while their tables live: beside them `Kept` keeps what is made of them.

        Views of a table hold it in memory, and it holds them: those that are kept are of its memory alone.
        """
        ends = self.by[0], self.by[-1]
        found = [_tensor_at(given, path) for path in ends]
        tables = [table for table, _ in found]
        now = (ends, self.tokens, self.own, *((t.data_ptr(), t.shape, t.stride(), t.dtype) for t in tables))
        kept = keeps(*tables)
        known: Any = getattr(tables[0], VIEWS, None) if kept else None
        if known is not None and known[0] == now:
            return known[1]  # type: ignore[no-any-return]
        parts = (_inside(table.detach() if kept else table, steps) for table, steps in found)
        views = tuple(reduced(part, self.tokens, self.own) for part in parts)
        if kept:
            setattr(tables[0], VIEWS, (now, views))
        return views


def in_whole_lines(table: Tensor, heads: Sequence[Tensor]) -> bool:
    """Whether PyTorch rounds each product of heads and a complex table, as phasor does.

    The body of its loop does; what is left over fuses one product with the sum, in each row and in each thread's share.
    Other devices fuse as they like, and a gradient comes in an order of axes of its own.
    """
    per_line, counts = LINE // table.itemsize, [x.numel() // 2 for x in heads]
    threads = [min(torch.get_num_threads(), -(-count // GRAIN)) for count in counts]
    shares = [-(-count // max(many, 1)) for count, many in zip(counts, threads, strict=True)]
    learns = torch.is_grad_enabled() and any(x.requires_grad for x in (table, *heads))
    whole = all(size % per_line == 0 for size in (table.shape[-1], *shares))
    return whole and table.is_cpu and table.stride(-1) == 1 and not learns and not transformed()


def at(given: Mapping[str, Any], path: Path) -> Any:
    return _inside(given[path[0]], path[1:])  # type: ignore[index]


def _tensor_at(given: Mapping[str, Any], path: Path) -> tuple[Tensor, Path]:
    """The tensor of an argument, and the steps of its path that go on inside it."""
    value, steps = given[path[0]], path[1:]  # type: ignore[index]
    while not isinstance(value, Tensor):
        value, steps = value[steps[0]], steps[1:]
    return value, steps


def _inside(value: Any, steps: Path) -> Any:
    for step in steps:
        value = PARTS[step](value) if isinstance(step, str) else value[step]
    return value


def joined(parts: Mapping[str | int, Tensor]) -> Tensor:
    """The tensor that has these `PARTS`.

    >>> cos, sin = torch.ones(3, 2), torch.zeros(3, 2)
    >>> joined({"cos of matrices": cos, "sin of matrices": sin}).shape, joined({"left": cos, "right": sin}).shape
    (torch.Size([3, 2, 2, 2]), torch.Size([3, 4]))
    """
    if "left" in parts:
        return torch.cat((parts["left"], parts["right"]), -1)
    if "real" in parts:
        return torch.complex(parts["real"], parts["imaginary"])
    cos, sin = parts["cos of matrices"], parts["sin of matrices"]
    return torch.unflatten(torch.stack((cos, -sin, sin, cos), -1), -1, (2, 2))


def reduced(table: Tensor, tokens: int, own: int | None = None) -> Tensor | None:
    """``[tokens, columns]`` or ``[batch, tokens, columns]`` of a table with axes for heads; with one more axis before
    the tokens where heads have rows of their ``own``. None where other axes differ.

    >>> reduced(torch.zeros(1, 1, 5, 4), -2).shape, reduced(torch.zeros(2, 5, 1, 4), -3).shape
    (torch.Size([5, 4]), torch.Size([2, 5, 4]))
    >>> reduced(torch.zeros(1, 5, 3, 4), -3, -2).shape
    torch.Size([3, 5, 4])
    """
    kept = {table.ndim + axis for axis in (tokens, own) if axis is not None}
    left = [i for i in range(table.ndim - 1) if i not in kept and table.shape[i] != 1]
    if len(left) > 1 or (left and left[0] != 0):
        return None
    for i in reversed(range(table.ndim - 1)):
        if i not in kept and i not in left:
            table = table.squeeze(i)
    return table if own is None or own < tokens else table.transpose(-2, -3)


@dataclass(frozen=True)
class Turned:
    """What was seen of one side, in the order of its layout: cos and sin ``[heads, tokens, pairs]``, one head where all
    are alike; which ``tokens`` turn, their positions and their spec if known."""

    layout: Layout
    cos: Tensor
    sin: Tensor
    tokens: slice
    spec: RotarySpec | None = None
    positions: Tensor | None = None

    @classmethod
    def of(cls, seen: Operator, place: Placed, tokens: slice, **more: Any) -> "Turned":
        own = [t.transpose(-2, -1) for t in (seen.cos, seen.sin)]
        if all(bool(((t - t[:1]).abs() <= STILL).all()) for t in own):
            own = [t[:1] for t in own]
        cos, sin = (torch.zeros(*own[0].shape[:2], place.layout.pairs, dtype=torch.float64) for _ in range(2))
        cos[:] = own[0].abs().max()  # of pairs that stand
        cos[..., list(place.pair_of)], sin[..., list(place.pair_of)] = own
        return cls(place.layout, cos, sin, tokens, **more)

    @property
    def in_one(self) -> "Turned":
        """All heads as one, whose channels turn before they are parted."""
        heads, layout = len(self.cos), self.layout
        cos, sin = (t.transpose(0, 1).flatten(1)[None] for t in (self.cos, self.sin))
        return replace(self, layout=Layout(head_dim=heads * layout.head_dim, interleaved=True), cos=cos, sin=sin)

    @property
    def ways(self) -> "tuple[Turned, ...]":
        """What a function may be given: heads, or the channels of all heads in a row."""
        whole = self.layout.rotary_dim == self.layout.head_dim and self.layout.interleaved
        return (self, self.in_one) if len(self.cos) > 1 and whole and not self.layout.permuted else (self,)

    def windows(self, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """cos and sin of so many tokens one after the other: all that turn, or one of two parts put together."""
        total = self.cos.shape[1]
        for start in dict.fromkeys((self.tokens.start or 0, 0, total - count)):
            if 0 <= start <= total - count:
                yield self.cos[:, start : start + count], self.sin[:, start : start + count]


def told(call: SeenCall, seen: Turned) -> list[tuple[Given, Form]] | str:
    """What the arguments of one call may be; or why that is not known."""
    leaves = list(_leaves(call.arguments))
    tensors = {path: value for path, value in leaves if isinstance(value, Tensor)}
    positions = [path for path, value in tensors.items() if _counts(value, seen)]
    tables = [role for path, value in tensors.items() for role in _roles(path, value, seen, positions)]
    ways = list(_ways(tables, positions, seen))
    if not ways:
        return COMPLEX if any(value.is_complex() for value in tensors.values()) else INLINE
    if odd := next((p for p, v in leaves if not isinstance(v, Tensor) and (len(p) > 1 or not _plain(v))), None):
        return f"its argument {_said(odd)} {ODD} a tensor nor a plain value"
    used = {role.path[: len(path)] for role in tables for path in tensors} | set(positions)
    heads = tuple(p for p, x in tensors.items() if p not in used and x.is_floating_point() and x.ndim > 2)
    numbers = [value for value in tensors.values() if value.is_complex()]
    if not all(in_whole_lines(table, [at(call.arguments, path) for path in heads]) for table in numbers):
        return COMPLEX
    if odd := next((path for path in tensors if path not in used and path not in heads), None):
        return f"its argument {_said(odd)} {ODD} heads nor what they turn by"
    results = _results(call, [at(call.arguments, path) for path in heads])
    if results is None:
        return MORE
    (many, transposed), first = results, at(call.arguments, heads[0])
    given = call.result[0] if many else call.result
    cast = given.dtype if given.dtype.itemsize < first.dtype.itemsize else None
    names = tuple(call.arguments)
    plain = tuple((str(path[0]), value) for path, value in leaves if not isinstance(value, Tensor))
    return [
        (
            Given(names, plain, heads, by, order, tokens, many, spec, rounded, transposed, take, own, cast, wide),
            form,
        )
        for by, form, tokens, take, spec, own in ways
        for order in (TOKENS if own is None else OWN)
        for rounded in (False, True)
        for wide in ((False, True) if len(by) == 1 and spec is None else (False,))
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
    """A table in an argument: its columns' form, the axis that holds the tokens, and that of heads with rows of their
    own."""

    name: Literal["cos", "sin", "angles"]
    path: Path
    form: Form
    tokens: int
    take: Take = None
    own: int | None = None


def _roles(path: Path, value: Tensor, seen: Turned, positions: list[Path]) -> Iterator[Role]:
    """What a tensor is, or its two parts: stacked, beside each other, members of matrices or of complex numbers."""
    if value.is_complex():
        yield from _both(path, ("real", "imaginary"), value, seen, positions)
    if value.is_floating_point():
        yield from _table(path, value, seen, positions)
        steps: list[tuple[str | int, ...]] = [(0, 1)] if value.ndim > 2 and value.shape[0] == 2 else []
        steps += [("left", "right")] if value.ndim > 1 and value.shape[-1] % 2 == 0 else []
        steps += [("cos of matrices", "sin of matrices")] if _rotates(value) else []
        for two in steps:
            yield from _both(path, two, value, seen, positions)


def _both(path: Path, two: tuple[str | int, ...], value: Tensor, seen: Turned, positions: list[Path]) -> Iterator[Role]:
    """Cosines and sines, where two parts of a tensor are these."""
    found = [role for i in two for role in _table((*path, i), at({"": value}, ("", i)), seen, positions)]
    yield from found if len({role.name for role in found}) > 1 else ()


def _rotates(value: Tensor) -> bool:
    """Whether these are matrices of two by two that rotate."""
    if value.shape[-2:] != (2, 2):
        return False
    return torch.equal(value[..., 0, 0], value[..., 1, 1]) and torch.equal(value[..., 0, 1], -value[..., 1, 0])


def _table(path: Path, value: Tensor, seen: Turned, positions: list[Path]) -> Iterator[Role]:
    pairs = seen.cos.shape[-1]
    if value.ndim < 2 or value.shape[-1] not in (pairs, 2 * pairs):
        return
    forms: list[Form] = ["half"] if value.shape[-1] == pairs else ["doubled", "repeated"]
    forms += ["blocks"] if seen.layout.blocks > 1 and value.shape[-1] > pairs else []
    axes = [a for a in (-2, -3, -4) if -a <= value.ndim]
    several = [a for a in axes if value.shape[a] == len(seen.cos)] if len(seen.cos) > 1 else [None]
    for axis, own, form in product(axes, several, forms):
        table = None if axis == own else reduced(value.double(), axis, own)
        if table is None:
            continue
        table = table[None] if table.ndim == 2 else table if own else table[:1]
        table = table[0] if table.ndim == 4 else table
        split = (table, table) if form == "half" else layout_of_table(2 * pairs, form, seen.layout.blocks).split(table)
        if not torch.equal(*split):
            continue
        for rows, cos, sin, take in _taken(split[0], seen, positions):
            if name := _named(rows, cos, sin):
                yield Role(name, path, form, axis, take, own)
                break


def _taken(table: Tensor, seen: Turned, positions: list[Path]) -> Iterator[tuple[Tensor, Tensor, Tensor, Take]]:
    """All rows of a table beside cos and sin of as many tokens; then, of a longer one, those that may be taken."""
    count = table.shape[1]
    yield from ((table, cos, sin, None) for cos, sin in seen.windows(count))
    cos, sin = seen.cos[:, seen.tokens], seen.sin[:, seen.tokens]
    if count <= cos.shape[1]:
        return
    if positions and seen.positions is not None:
        yield table[:, _rows(seen, count)], cos, sin, positions[0]
    elif not positions:
        yield table[:, : cos.shape[1]], cos, sin, "first"


def _named(rows: Tensor, cos: Tensor, sin: Tensor) -> Literal["cos", "sin", "angles", ""]:
    if _alike(rows, cos):
        return "cos"
    if _alike(rows, sin) or _alike(rows, -sin):
        return "sin"
    return "angles" if _alike(rows.cos(), cos) and _alike(rows.sin().abs(), sin.abs()) else ""


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


Found = tuple[tuple[Path, ...], Form, int, Take, RotarySpec | None, int | None]


def _ways(tables: list[Role], positions: list[Path], seen: Turned) -> Iterator[Found]:
    for cos, sin in product(tables, tables):
        if (cos.name, sin.name) == ("cos", "sin") and replace(cos, name="sin", path=sin.path) == sin:
            yield (cos.path, sin.path), cos.form, cos.tokens, cos.take, None, cos.own
    for angles in tables:
        if angles.name == "angles":
            yield (angles.path,), angles.form, angles.tokens, angles.take, None, angles.own
    if not tables and positions and seen.spec is not None:
        yield (positions[0],), "half", -2, None, seen.spec, None


def _said(path: Path) -> str:
    return str(path[0]) + "".join(f"[{i}]" for i in path[1:])
