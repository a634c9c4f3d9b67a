"""What turns one side of an attention: the farthest stretch behind it that consists of plane rotations."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from .likeness import as_in
from .linear import KEEPS_NUMBERS, MOVES, NORMS, PRODUCTS, Cut, Linearity, mixes, replay, single_sources, walk
from .matrices import Axes, Mixed, NoRotation, axes_of, matrices_of
from .operator import MOST_ENTRIES, TWO_ANGLES, Operator, joined, moves, operator
from .tape import Operation, Ref, Tape

TURNED_BEFORE = "before its rotation it is turned by other pairs, and both together are no rotation"
BY_A_MATRIX = "it is multiplied by a matrix that depends on the data"
DEEPEST = 3  # norms, one behind the other, that are stepped over
LONGER, NEARLY = 4.0, 0.02  # what a norm makes of vectors so much longer, but for its epsilon
MOST_NEW = 4_000_000  # entries of matrices, of what is not as something that was seen before
MOST_ELEMENTS = 1_000_000  # of a value that is looked at


@dataclass(frozen=True)
class Seen:
    """``operator``: what was seen, or None; ``fixed``: it is the same for every token, so nothing turns.

    ``missing``: why nothing was seen. ``norms``: how many norms stand between it and the product. ``mixed``: what
    happens to it is seen, and is no rotation.
    """

    operator: Operator | None = None
    fixed: bool = False
    missing: str = ""
    norms: int = 0
    mixed: bool = False

    @property
    def turns(self) -> bool:
        return self.operator is not None and self.operator.turns and self.operator.second is None


@dataclass
class Learned:
    """What tapes of one model have shown, for the next one: operations that are ``linear``, ``operators`` that turn.

    With each the names of the operations that stand before it and are linear, too: the weights of a norm.
    """

    linear: dict[Any, bool] = field(default_factory=dict)
    operators: list[tuple[Operator, tuple[str, ...]]] = field(default_factory=list)


class Eye:
    """Sees the operators of one tape. What one layer was seen to do is known in all layers that do the same."""

    def __init__(self, tape: Tape, learned: Learned | None = None) -> None:
        self.learned = Learned() if learned is None else learned
        self.tape, self.linear = tape, Linearity(tape, self.learned.linear)
        self._known: list[tuple[Cut, Axes, Operator]] = []
        self._seen: dict[tuple[int, int, bool, int], Seen] = {}

    def seen(self, target: int, tokens: int, transposed: bool = False, depth: int = 0) -> Seen:
        """What happens to a value between the projection that it comes from and the attention that it goes to."""
        key = target, tokens, transposed, depth
        if key not in self._seen:
            self._seen[key] = self._looked_at(*key)
        return self._seen[key]

    def _looked_at(self, target: int, tokens: int, transposed: bool, depth: int) -> Seen:
        if (parts := self._in_parts(target, tokens, depth)) is not None:
            return parts
        tape, path = self.tape, walk(self.tape, self.linear, target)
        missing, steady, mixed = "", True, False
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
        if (again := self._as_before(tries, target, axes)) is not None:
            return _turning(again, depth)
        most = MOST_NEW if self.learned.operators else MOST_ENTRIES
        far: Cut | None = None  # the farthest that is no rotation
        for cut in tries:
            try:
                found = operator(tape, cut, target, axes, most)
            except NoRotation as reason:
                steady = steady and not reason.moves
                missing, mixed = missing or str(reason), mixed or isinstance(reason, Mixed)
                far = far or (cut if isinstance(reason, Mixed) and reason.moves else None)
                continue
            if found.turns:
                if far is not None and self._moves_between(far, cut, tokens):
                    return Seen(missing=TURNED_BEFORE, norms=depth, mixed=True)
                self._known.append((cut, axes, found))
                self._learn(found, _beyond(cut, tries))
                return _turning(found, depth)
            best = best or found
            break  # a nearer stretch turns only what the rest of this one would turn back
        deeper = self._behind_norms(path.stopped, tokens, depth)
        if deeper is not None and (deeper.turns or (tokens > 1 and not deeper.fixed)):
            return deeper
        if tries and tokens == 1:
            return Seen(best, missing="one token does not show whether positions turn it")
        if not steady:
            return self._behind_matrix(target, tokens, depth) or Seen(None, missing=missing, mixed=mixed)
        if convolved := [o for i in path.stopped if (o := tape.maker(i)) is not None and _joins_tokens(tape, o)]:
            return Seen(missing=f"a {convolved[0].name} mixes its tokens right before the product")
        if missing:
            return Seen(best, fixed=True, missing=f"{missing}, alike for all tokens: no position is in it", norms=depth)
        if known is None and best is not None and path.cuts[-1].operations == best.operations:
            self._known.append((path.cuts[-1], axes, best))
        return Seen(best, fixed=True, norms=depth)

    def _moves_between(self, far: Cut, near: Cut, tokens: int) -> bool:
        """Whether what stands before a nearer cut mixes channels otherwise from token to token.

        The first token is left out: nothing turns it, so it follows from fewer inputs than the others.
        """
        between = Cut(far.sources, far.operations[len(near.operations) :])
        for source in set(near.sources) - set(far.sources):
            try:
                axes = axes_of(self.tape.values[source], tokens, transposed=False)
                matrices, _ = matrices_of(self.tape, between, source, axes, MOST_ENTRIES, first=1)
            except (NoRotation, RuntimeError):
                continue
            size = torch.linalg.vector_norm(matrices, dim=(-2, -1), keepdim=True)
            some = (size > 0).all(0).flatten()  # tokens that are padding have none
            if some.any() and moves((matrices / size)[:, some]):
                return True
        return False

    def _as_before(self, tries: Sequence[Cut], target: int, axes: Axes) -> Operator | None:
        """What turns as something in an earlier tape did, behind as many operations of the same names."""
        for cut in tries:
            beyond = _beyond(cut, tries)
            likely = [found for found, its_beyond in self.learned.operators if its_beyond == beyond]
            try:
                found = as_in(likely, self.tape, cut, target, axes)
            except (NoRotation, RuntimeError):  # which the whole matrix says in words
                continue
            if found is not None and found.turns:
                self._known.append((cut, axes, found))
                return found
        return None

    def _learn(self, found: Operator, beyond: tuple[str, ...]) -> None:
        """One of each form: which channels hang together, and what stands before."""
        if found.second is None and all(
            (one.inputs, its_beyond) != (found.inputs, beyond) for one, its_beyond in self.learned.operators
        ):
            self.learned.operators.append((found, beyond))

    def _in_parts(self, target: int, tokens: int, depth: int) -> Seen | None:
        """What is seen of keys that were joined with those of earlier calls, part by part; None where none were."""
        tape, maker, moved = self.tape, self.tape.maker(target), list[Operation]()
        while maker is not None and maker.name in MOVES and len(maker.inputs) == 1:
            moved.append(maker)
            if (kept := self._window(maker, target, tokens, depth)) is not None:
                return _with(kept, moved)
            target, maker = maker.inputs[0], tape.maker(maker.inputs[0])
        if maker is None or maker.name not in ("cat", "index_copy_"):
            return None
        value = tape.values[target]
        parts = [i for i in maker.inputs if tape.values[i].numel()] if maker.name == "cat" else _written(tape, maker)
        axes = range(value.ndim > 3, value.ndim - 1)  # the first of four is that of a batch
        joins = (a for a in axes if tape.values[parts[0]].shape[a] != value.shape[a])
        axis = next(joins, None) if len(parts) > 1 else None
        if axis is None or value.shape[axis] != tokens or not tape.data.issuperset(parts):
            return None
        seen = [self.seen(part, tape.values[part].shape[axis], depth=depth) for part in parts]
        operators = [one.operator for one in seen if one.operator is not None]
        whole = joined(operators) if len(operators) == len(parts) else None
        if whole is None:
            return next((one for one in seen if one.mixed), None)
        return _with(_turning(whole, max(one.norms for one in seen)), moved)

    def _window(self, maker: Operation, target: int, tokens: int, depth: int) -> Seen | None:
        """What is seen of the last tokens of joined keys: those that a window keeps."""
        whole, part = self.tape.values[maker.inputs[0]], self.tape.values[target]
        if maker.name != "slice" or whole.ndim != part.ndim or len(maker.args) > 4 or part.ndim < 3:
            return None
        axis = int(maker.args[1]) % whole.ndim if len(maker.args) > 1 else 0
        if axis == whole.ndim - 1 or part.shape[axis] != tokens or whole.shape[axis] == tokens:
            return None
        seen = self._in_parts(maker.inputs[0], whole.shape[axis], depth)
        if seen is None or seen.operator is None:
            return None
        start = int(maker.args[2] or 0) if len(maker.args) > 2 else 0
        start = start + whole.shape[axis] if start < 0 else start
        return replace(seen, operator=seen.operator.of_tokens(slice(start, start + tokens)))

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
            if not _of_direction(tape, source, between, number):
                return Seen(missing=f"it is changed by more than its length ({maker.name})", mixed=True)
            deeper = self.seen(source, tokens, depth=depth + 1)
            if found is None or deeper.turns or not deeper.fixed:
                found = deeper
            if found.turns:
                break
        return found


def _written(tape: Tape, write: Operation | None) -> list[int]:
    """What was written into a place for tokens (a static cache), in their order; nothing where any is over another."""
    parts, indices, whole = list[int](), list[Tensor](), -1
    while write is not None and write.name == "index_copy_":
        whole, index, part = write.inputs
        parts, indices = [part, *parts], [tape.values[index], *indices]
        write = tape.maker(whole)
    at = torch.cat(indices)
    return parts if whole not in tape.data and torch.equal(at, torch.arange(len(at))) else []


def _of_direction(tape: Tape, source: int, between: Sequence[Operation], target: int) -> bool:
    """Whether what is not linear gives the same for vectors of any length, as norms do, or is as long as they are.

    But for a constant that is added.
    """
    x = tape.values[source].double()
    added, once, longer = (replay(tape, between, {source: x * times}, target) for times in (0.0, 1.0, LONGER))
    added = added.nan_to_num(0.0)  # a norm without an epsilon
    once, longer = once - added, longer - added
    allowed = NEARLY * longer.abs().max() if longer.numel() else torch.zeros(())
    return any(bool(((longer - once * times).abs() <= allowed).all()) for times in (1.0, LONGER))


def _beyond(cut: Cut, tries: Sequence[Cut]) -> tuple[str, ...]:
    """What stands before a cut and behind the farthest one, which is the first."""
    return tuple(o.name for o in tries[0].operations[len(cut.operations) :])


def _with(seen: Seen, moved: Sequence[Operation]) -> Seen:
    """With the operations that only moved what was seen, or rounded it."""
    assert seen.operator is not None
    return replace(seen, operator=replace(seen.operator, operations=(*moved, *seen.operator.operations)))


def _turning(found: Operator, depth: int) -> Seen:
    found = found.upright() if depth else found  # before a norm heads and tokens may lie the other way round
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
