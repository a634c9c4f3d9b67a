"""What turns one side of an attention: the farthest stretch behind it that consists of plane rotations."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from .linear import MOVES, NORMS, PRODUCTS, Cut, Linearity, mixes, single_sources, walk
from .operator import TWO_ANGLES, Axes, NoRotation, Operator, axes_of, operator
from .tape import Operation, Ref, Tape

BY_A_MATRIX = "it is multiplied by a matrix that depends on the data"
DEEPEST = 3  # norms, one behind the other, that are stepped over
MOST_ELEMENTS = 1_000_000  # of a value that is looked at
KEEPS_NUMBERS = MOVES | {"cat", "stack", "copy_", "where", "masked_fill", "constant_pad_nd", "neg", "index"}


@dataclass(frozen=True)
class Seen:
    """``operator``: what was seen, or None; ``fixed``: it is the same for every token, so nothing turns.

    ``missing``: why nothing was seen. ``norms``: how many norms stand between it and the product.
    """

    operator: Operator | None = None
    fixed: bool = False
    missing: str = ""
    norms: int = 0

    @property
    def turns(self) -> bool:
        return self.operator is not None and self.operator.turns and self.operator.second is None


class Eye:
    """Sees the operators of one tape. What one layer was seen to do is known in all layers that do the same."""

    def __init__(self, tape: Tape) -> None:
        self.tape, self.linear = tape, Linearity(tape)
        self._known: list[tuple[Cut, Axes, Operator]] = []

    def seen(self, target: int, tokens: int, transposed: bool = False, depth: int = 0) -> Seen:
        """What happens to a value between the projection that it comes from and the attention that it goes to."""
        tape, path = self.tape, walk(self.tape, self.linear, target)
        missing, steady = "", True
        try:
            axes = axes_of(tape.values[target], tokens, transposed)
        except NoRotation as reason:
            return Seen(missing=str(reason))
        if (known := self._recognised(path.cuts, target, axes)) is not None and known.turns:
            return _turning(known, depth)
        best = known
        tries = [] if known is not None or not self._multiplied(path.cuts) else list(_worth_trying(path.cuts))
        if tries and tape.values[target].numel() > MOST_ELEMENTS:
            return Seen(missing="it has too many elements to be looked at")
        for cut in tries:
            try:
                found = operator(tape, cut, target, axes)
            except NoRotation as reason:
                steady = steady and not reason.moves
                missing = missing or str(reason)
                continue
            if found.turns:
                self._known.append((cut, axes, found))
                return _turning(found, depth)
            best = best or found
        if tries and tokens == 1:
            return Seen(missing="one token does not show whether positions turn it")
        deeper = self._behind_norms(path.stopped, tokens, depth)
        if deeper is not None and (deeper.turns or not deeper.fixed):
            return deeper
        if not steady:
            return self._behind_matrix(target, tokens, depth) or Seen(None, missing=missing)
        if convolved := [o for i in path.stopped if (o := tape.maker(i)) is not None and _joins_tokens(tape, o)]:
            return Seen(missing=f"a {convolved[0].name} mixes its tokens right before the product")
        if missing:
            return Seen(best, fixed=True, missing=f"{missing}, alike for all tokens: no position is in it", norms=depth)
        if known is None and best is not None and path.cuts[-1].operations == best.operations:
            self._known.append((path.cuts[-1], axes, best))
        return Seen(best, fixed=True, norms=depth)

    def _multiplied(self, cuts: tuple[Cut, ...]) -> bool:
        """Whether anything on the way multiplies by more than one number that does not depend on the data."""
        tape = self.tape
        for operation in cuts[-1].operations if cuts else ():
            if operation.name not in KEEPS_NUMBERS:
                for i in operation.inputs:
                    value = tape.values[i]
                    if i not in tape.data and value.numel() > 1 and value.dtype != torch.bool:
                        return True
        return False

    def _recognised(self, cuts: tuple[Cut, ...], target: int, axes: Axes) -> Operator | None:
        """The operator of a stretch that does, operation for operation, what one before it did."""
        for cut, its_axes, found in self._known:
            same = next((c for c in cuts if len(c.operations) == len(cut.operations)), None)
            if same is None or (not found.turns and same is not cuts[-1]):
                continue
            if axes == its_axes and self._alike(cut, same) and self._output(found.target) == self._output(target):
                return replace(found, operations=same.operations, target=target, sources=same.sources)
        return None

    def _output(self, number: int) -> int:
        """Which output of its operation a value is."""
        maker = self.tape.maker(number)
        return 0 if maker is None else maker.outputs.index(number)

    def _alike(self, a: Cut, b: Cut) -> bool:
        return len(a.sources) == len(b.sources) and all(
            self._same_step(x, y) for x, y in zip(a.operations, b.operations, strict=True)
        )

    def _same_step(self, a: Operation, b: Operation) -> bool:
        return a.func is b.func and self._same((a.args, a.kwargs), (b.args, b.kwargs))

    def _same(self, a: Any, b: Any) -> bool:
        if isinstance(a, tuple | list):
            return isinstance(b, tuple | list) and len(a) == len(b) and all(map(self._same, a, b))
        if isinstance(a, dict):
            return isinstance(b, dict) and a.keys() == b.keys() and all(self._same(a[k], b[k]) for k in a)
        if not isinstance(a, Ref) or not isinstance(b, Ref):
            return type(a) is type(b) and bool(a == b)
        mine, theirs = self.tape.values[a.number], self.tape.values[b.number]
        if mine.shape != theirs.shape or mine.dtype != theirs.dtype:
            return False
        if (a.number in self.tape.data) != (b.number in self.tape.data):
            return False
        return a.number in self.tape.data or a.number == b.number or torch.equal(mine, theirs)

    def _behind_matrix(self, target: int, tokens: int, depth: int) -> Seen | None:
        """What turns before one matrix mixes all channels (a Hadamard transform); None where nothing is seen to."""
        for source, between in single_sources(self.tape, target, 12) if depth < DEEPEST else ():
            if any(mixes(self.tape, o) for o in between):
                return None
            matrices = [o for o in between if o.name in PRODUCTS]
            if not all(_keeps_lengths(self.tape, o) for o in matrices):
                return None
            if matrices:
                found = self.seen(source, tokens, depth=depth + 1)
                if found.turns:
                    return found
        return None

    def _behind_norms(self, stopped: tuple[int, ...], tokens: int, depth: int) -> Seen | None:
        """What is seen behind values that do not follow linearly; None where each comes from a projection."""
        tape, found = self.tape, None
        for number in stopped:
            maker = tape.maker(number)
            if maker is not None and maker.name == "bmm" and tape.data.issuperset(maker.inputs):
                return Seen(missing=BY_A_MATRIX)
            if maker is None or (mixes(tape, maker) and maker.name not in NORMS):
                continue
            if depth >= DEEPEST:
                return Seen(missing="too many operations that are not linear stand between it and its projection")
            source, between = next(single_sources(tape, number), (None, []))
            if source is None or any(mixes(tape, o) and o.name not in NORMS for o in between):
                return Seen(missing=f"it is multiplied by what depends on the data ({maker.name})")
            deeper = self.seen(source, tokens, depth=depth + 1)
            if found is None or deeper.turns or not deeper.fixed:
                found = deeper
            if found.turns:
                break
        return found


def _turning(found: Operator, depth: int) -> Seen:
    return Seen(found, missing="" if found.second is None else TWO_ANGLES, norms=depth)


def _keeps_lengths(tape: Tape, operation: Operation) -> bool:
    """Whether a product is one with an orthogonal matrix, up to a factor: in scores two of them undo each other."""
    matrix = next((tape.values[i] for i in operation.inputs[-2:] if i not in tape.data), None)
    if matrix is None or matrix.shape[-1] != matrix.shape[-2]:
        return False
    square = matrix.double() @ matrix.double().mT
    size = square.diagonal(dim1=-2, dim2=-1).mean()
    return bool((square - size * torch.eye(square.shape[-1], dtype=square.dtype)).abs().max() <= 1e-2 * size)


def _joins_tokens(tape: Tape, operation: Operation) -> bool:
    """A convolution over more than one token; over one it is a projection."""
    if operation.name not in ("convolution", "conv1d") or len(operation.inputs) < 2:
        return False
    return bool(max(tape.values[operation.inputs[1]].shape[2:], default=1) > 1)


def _worth_trying(cuts: tuple[Cut, ...]) -> Iterator[Cut]:
    """The farthest first; of cuts between which elements only move, the farthest."""
    before: Cut | None = None
    for cut in reversed(cuts):
        if before is None or any(o.name not in MOVES for o in before.operations[len(cut.operations) :]):
            yield cut
            before = cut
