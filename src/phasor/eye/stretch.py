"""The shortest part of a rotation that can be cut out: from one value to another of its shape.

The eye sees the farthest stretch that turns, with transposes, masks and softmax factors around it. What is put in its
place must turn and do no more.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..rotary.layout import Layout
from .layout import Placed, placed
from .likeness import as_in
from .linear import MOVES, Cut, Linearity, walk
from .matrices import Axes, NoRotation, axes_of
from .operator import Operator, operator
from .spec import EVEN_HALF, EVEN_SINGLE, in_half
from .tape import Operation, Tape, upstream

ALIKE = 1e-6  # radians, on average, between two ways of seeing one rotation


@dataclass(frozen=True, eq=False)
class Stretch:
    """``source`` becomes ``target`` by what was ``seen``, and by nothing else; ``tokens``: their axis in both.

    ``factor``: by how much cos and sin are longer than 1; ``exact``: it is to the bit.
    """

    source: int
    target: int
    tokens: int
    seen: Operator
    place: Placed
    factor: float
    exact: bool


class CannotSay(Exception):
    """Why a rotation is none that `RotaryEmbedding` says, as a clause."""


@dataclass
class Stretches:
    """Cuts rotations out of one tape. ``within``: the values that may be its ends."""

    tape: Tape
    within: Collection[int]
    _known: dict[Any, tuple[int, int, Operator]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.linear = Linearity(self.tape)

    def of(self, seen: Operator, tokens: int) -> Stretch:
        """The shortest one that rotates as ``seen``, with the channels that pass; raises `CannotSay`."""
        operations = sorted(seen.operations, key=lambda o: o.index)
        form = tuple((o.func, self.tape.values[o.inputs[0]].shape if o.inputs else ()) for o in operations)
        at, length, like = self._known.get(form, (None, 0, None))  # as in a layer before
        best, why = None, "no two values of one shape stand around it"
        tried = operations if at is None else [operations[at]]
        for target, cut in ends_of(self.tape, self.linear, tried, self.within):
            if best is not None and self.tape.values[target].shape[-1] <= best.seen.channels:
                continue  # what is longer does more, unless it takes channels along that pass
            if like is not None and len(cut.operations) != length:
                continue
            try:
                axes = _axes_of(self.tape.values[target], tokens, seen)
                known = None if like is None else as_in([like], self.tape, cut, target, axes)
                found = known or operator(self.tape, cut, target, axes)
                if found.turns and (_alike(found, seen) or (best is None and _alike_in_all(found, seen))):
                    best, place = self._sayable(found, axes.tokens), self.tape.maker(target)
                    self._known[form] = operations.index(place), len(cut.operations), found  # type: ignore[arg-type]
            except NoRotation:
                continue
            except CannotSay as reason:
                why = str(reason)
        if best is None:
            raise CannotSay(why)
        return best

    def _sayable(self, seen: Operator, tokens: int) -> Stretch:
        """Raises `CannotSay` for what is not halves or neighbours of the first channels, turned alike in all heads."""
        place = placed(seen)
        if place is None or place.layout.blocks != 1:
            raise CannotSay(f"its pairs {seen.pairs[:3]}… are neither halves nor neighbours")
        if place.layout.trailing and (place := _whole(place.layout, place.pair_of)) is None:
            raise CannotSay("the channels that it turns are the last ones")
        channels, pairs = place.layout.channels(), place.layout.pairs
        read = tuple((channels[i], channels[pairs + i]) for i in place.pair_of)
        if seen.inputs != read or seen.passing_inputs != seen.passing or seen.zero:
            raise CannotSay("it also moves channels to other places")
        if seen.passing and bool((seen.passed != 1).any()):
            raise CannotSay("the channels that it does not turn have a factor")
        factor, even = float(seen.scale.median()), EVEN_HALF if in_half(seen) else EVEN_SINGLE
        if factor <= 0 or bool(((seen.scale - factor).abs() > even * factor).any()):
            raise CannotSay("its pairs, or its tokens, have factors of their own")
        if bool(((seen.angles - seen.angles[:1]).abs() > 1e-4).any()):
            raise CannotSay("its heads, or its sequences, turn otherwise than the first")
        return Stretch(seen.sources[0], seen.target, tokens, seen, place, *self._factor(seen, factor, even))

    def _factor(self, seen: Operator, measured: float, even: float) -> tuple[float, bool]:
        """The factor of cos and sin, and whether it is exact: 1, or a number that the tape has."""
        singles = (self.tape.values[i] for i in upstream(self.tape, tables_of(self.tape, seen)))
        known = [float(value) for value in singles if value.numel() == 1 and value.is_floating_point()]
        best = min((1.0, *known), key=lambda number: abs(number - measured))
        return (best, True) if abs(best - measured) <= even / 10 * measured else (measured, False)


def _whole(layout: Layout, pair_of: tuple[int, ...]) -> Placed | None:
    """With the first channels as pairs that turn by 0, which neighbours can be, and halves cannot."""
    first = layout.head_dim - layout.rotary_dim
    if not layout.interleaved or layout.permuted or first % 2:
        return None
    return Placed(Layout(head_dim=layout.head_dim, interleaved=True), tuple(first // 2 + i for i in pair_of))


def ends_of(
    tape: Tape, linear: Linearity, operations: Iterable[Operation], within: Collection[int]
) -> Iterator[tuple[int, Cut]]:
    """Ends of stretches from one value to another of its shape, the earliest target first, its nearest source first."""
    for target in (i for o in operations for i in o.outputs if i is not None and i in within):
        for cut in walk(tape, linear, target).cuts:
            source, changes = cut.sources[0], any(o.name not in MOVES for o in cut.operations)
            alone = len(cut.sources) == 1 and source in within
            if alone and changes and tape.values[source].shape == tape.values[target].shape:
                yield target, cut


def _alike(one: Operator, other: Operator) -> bool:
    """Whether the same angles are in both, in whatever order of pairs."""
    if one.second is not None or len(one.pairs) != len(other.pairs) or one.angles.shape[-1] != other.angles.shape[-1]:
        return False
    apart = one.angles[0].abs().sum(0) - other.angles[0].abs().sum(0)
    return bool(apart.abs().max() <= ALIKE * len(one.pairs))


def _alike_in_all(one: Operator, other: Operator) -> bool:
    """Whether both may hold the same angles where one has heads in its channels, or lacks tokens that do not turn.

    The sums of all angles say it: a hint, and no proof, which other angles may give too. What is put in the place of
    the stretch is run beside it (`proved_equal` of the ONNX files), and the stretch stays where values differ.
    """
    apart = one.angles.abs().sum() - other.angles.abs().sum()
    return one.second is None and bool(apart.abs() <= ALIKE * other.angles.numel())


def _axes_of(value: Tensor, tokens: int, seen: Operator) -> Axes:
    """Where all tokens are, or those that turn and one at position 0; raises `NoRotation`."""
    turning = seen.angles.abs().sum((0, 1)).nonzero()
    span = int(turning[-1] - turning[0]) + 1
    for count in {tokens: 0, span: 0, span + 1: 0}:
        with suppress(NoRotation):
            return axes_of(value, count, False)
    raise NoRotation("its tokens are on no axis", moves=False)


def coordinate_in(tape: Tape, seen: Operator, coordinate: Tensor, within: Collection[int]) -> int | None:
    """The value that says where each token stands: of those that its tables follow from, the last one; whole numbers
    before others. None where there is none."""
    found = [i for i in upstream(tape, tables_of(tape, seen)) if i in within and _says(tape.values[i], coordinate)]
    if not found:
        return None
    last = max(found, key=lambda i: (not tape.is_float(i), i))
    while (maker := tape.maker(last)) is not None and maker.name in MOVES and maker.inputs[0] in found:
        last = maker.inputs[0]  # before it was spread over axes
    return last


def tables_of(tape: Tape, seen: Operator) -> list[int]:
    """What it multiplies by."""
    return [i for o in seen.operations for i in o.inputs if i not in tape.data]


def _says(value: Tensor, coordinate: Tensor) -> bool:
    """Whether its last axis longer than 1 holds these numbers, in each of its rows."""
    count = len(coordinate)
    if value.dtype == torch.bool or value.is_complex() or value.numel() % count or not value.numel():
        return False
    rows = value.squeeze()
    return rows.ndim in (1, 2) and rows.shape[-1] == count and bool((rows.double() == coordinate).all())
