"""What a stretch of a tape does to the channels of one token: planes that turn, channels that pass, factors.

The stretch is linear, so one matrix per head and token says everything about it. All of them come from one vectorised
backward pass.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from ..support.errors import first_line
from .linear import Cut
from .matrices import Axes, Mixed, NoRotation, matrices_of
from .tape import Operation, Tape

TWO_ANGLES = "the two members of its pairs turn by different angles, which is no rotation"
MOST_ENTRIES = 130_000_000  # of all matrices together: a gigabyte

Pairs = Sequence[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class Operator:
    """What happens to each of the channels, per head and token.

    ``pairs``: the output's channels that turn together, in the order in which the angle is counted; ``inputs``: the
    channels that they come from, numbered among the ``width`` inputs of one head. ``cos`` and ``sin`` ``[heads, pairs,
    tokens]`` are the entries of the matrices, factors included; ``passing`` channels are multiplied by ``passed [heads,
    passing, tokens]`` and come from ``passing_inputs``. ``zero``: channels that are always 0. ``second``: cos and sin
    of the second member of each pair where it turns by another angle, which is no rotation. ``factor``: the part of
    all factors that is a plain number in the code or, ``trained``, one weight for all. ``own_heads``: heads before they
    are repeated for several queries. ``origin [heads, 1, tokens]``: the first element that each comes from; -1: none.
    """

    channels: int
    width: int
    pairs: tuple[tuple[int, int], ...]
    inputs: tuple[tuple[int, int], ...]
    cos: Tensor
    sin: Tensor
    passing: tuple[int, ...]
    passing_inputs: tuple[int, ...]
    passed: Tensor
    origin: Tensor
    zero: tuple[int, ...] = ()
    second: tuple[Tensor, Tensor] | None = None
    factor: float = 1.0
    trained: float = 1.0
    operations: tuple[Operation, ...] = field(default=(), repr=False)
    target: int = -1
    sources: tuple[int, ...] = ()
    own_heads: int = 0

    @property
    def turns(self) -> bool:
        return bool(self.pairs)

    def members(self) -> "Operator":
        """The first members of all pairs, then the second ones as pairs of their own, where these turn otherwise."""
        if self.second is None:
            return self
        cos, sin = self.second
        return replace(self, cos=torch.cat((self.cos, cos), 1), sin=torch.cat((self.sin, sin), 1), second=None)

    def of_queries(self, keys: int) -> "Operator":
        """Itself, heads and tokens told apart where the product with so many ``keys`` has them elsewhere.

        Some scorers multiply all heads of one token with all keys: their tokens lie where others have heads. And heads
        that share a key may be folded into its axis of tokens: each of them turns as the others do.
        """
        both = torch.stack((self.cos, self.sin))
        heads, rows = both.shape[1], both.shape[-1]
        if not self.turns:
            return self
        if bool((both == both[..., :1]).all()) and bool((both != both[:, :1]).any()):
            if heads == rows == keys:
                raise NoRotation(f"it has as many heads as tokens, {keys}, and which of them turn is not to be told")
            return self._exchanged() if heads == keys else self
        if rows % keys == 0 and rows > keys:
            for shape, tokens in (((-1, keys), -1), ((keys, -1), -2)):
                split = torch.unflatten(both, -1, shape).movedim(tokens, -1)
                if bool((split == split[..., :1, :]).all()):
                    return self.unfolded(shape, tokens)
        return self

    def upright(self) -> "Operator":
        """Itself with heads and tokens exchanged, of which there are as many, where heads turn as tokens must."""
        tokens, both = self.cos.shape[-1], torch.stack((self.cos, self.sin))
        if both.shape[1] % tokens or bool((both != both[..., :1]).any()):
            return self
        rows = torch.unflatten(both, 1, (-1, tokens))  # of a batch, each with its heads
        lies = bool((rows != rows[:, :, :1]).any())
        return self._each(lambda t: torch.unflatten(t, 0, (-1, tokens)).transpose(1, 3).flatten(0, 1)) if lies else self

    def unfolded(self, shape: tuple[int, int], tokens: int) -> "Operator":
        """Itself with its axis of tokens split in two: in ``shape``, of which axis ``tokens`` holds the tokens."""

        def heads(t: Tensor) -> Tensor:
            return torch.unflatten(t, -1, shape).movedim(tokens, -1).movedim(-2, 1).flatten(0, 1)

        return self._each(heads)

    def _exchanged(self) -> "Operator":
        return self._each(lambda t: t.transpose(0, 2))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Operator":
        """With every ``[heads, pairs, tokens]`` changed."""
        second = None if self.second is None else (change(self.second[0]), change(self.second[1]))
        cos, sin, passed, origin = (change(t) for t in (self.cos, self.sin, self.passed, self.origin))
        return replace(self, cos=cos, sin=sin, passed=passed, origin=origin, second=second)

    def of_pairs(self, pairs: Pairs, inputs: Pairs) -> Tensor | None:
        """``[heads, pairs, tokens]``: the complex number that multiplies each of ``pairs``, which come from ``inputs``.

        Channels that pass alike are multiplied by a real number. None where other channels hang together.
        """
        turned = {frozenset(pair): i for i, pair in enumerate(self.pairs)}
        passed = {channel: i for i, channel in enumerate(self.passing)}
        found = []
        for (a, b), (x, y) in zip(pairs, inputs, strict=True):
            if (i := turned.get(frozenset((a, b)))) is not None:
                same = self.pairs[i] == (a, b)
                if self.inputs[i] != ((x, y) if same else (y, x)):
                    return None
                one = torch.complex(self.cos[:, i], self.sin[:, i])
                found.append(one if same else one.conj())
            elif a in passed and b in passed:
                one, other = self.passed[:, passed[a]], self.passed[:, passed[b]]
                if not torch.equal(one, other) or self.passing_inputs[passed[a]] != x:
                    return None
                found.append(one.to(torch.complex128))
            elif {a, b} <= set(self.zero):
                found.append(torch.zeros_like(self.cos[:, 0] if self.pairs else self.passed[:, 0]).to(torch.complex128))
            else:
                return None
        return torch.stack(found, 1)

    def of_passing(self, channels: Sequence[int]) -> Tensor | None:
        """``[heads, channels, tokens]``: by what channels that pass are multiplied; None where one of them turns."""
        if not set(channels) <= {*self.passing, *self.zero}:
            return None
        known = {channel: self.passed[:, i] for i, channel in enumerate(self.passing)}
        none = torch.zeros(self.cos.shape[0], 0, self.cos.shape[-1], dtype=torch.float64)
        found = [known.get(channel, torch.zeros(none.shape[::2], dtype=torch.float64)) for channel in channels]
        return torch.stack(found, 1) if found else none

    def of_tokens(self, some: slice) -> "Operator":
        """Of some of its tokens."""
        return self._each(lambda t: t[..., some])

    @cached_property
    def exchanged(self) -> str:
        """What of heads and tokens comes in another order than it was projected in; empty where neither does."""
        heads, tokens = (self.origin[:, 0].diff(dim=axis) for axis in (0, 1))
        known = self.origin[:, 0] >= 0
        if bool(((tokens <= 0) & known[:, 1:] & known[:, :-1]).any()):
            return "tokens"
        return "heads" if bool(((heads < 0) & known[1:] & known[:-1]).any()) else ""

    @cached_property
    def angles(self) -> Tensor:
        """float64 ``[heads, pairs, tokens]``, radians from -pi to pi."""
        sign = math.copysign(1.0, self.factor)
        return torch.atan2(sign * self.sin, sign * self.cos)

    @cached_property
    def scale(self) -> Tensor:
        """float64 ``[heads, pairs, tokens]``: how much longer each pair becomes; negative where a number negates it."""
        return math.copysign(1.0, self.factor) * torch.hypot(self.sin, self.cos)


def joined(parts: Sequence[Operator]) -> Operator | None:
    """One operator of the tokens of several, one after the other; None where they turn other channels together.

    None too where the members of a pair turn by angles of their own.
    """
    most = max(parts, key=lambda part: len(part.pairs))
    if not most.turns or any(part.second is not None for part in parts):
        return None
    turned = [part.of_pairs(most.pairs, most.inputs) for part in parts]
    alone = [i for i, c in enumerate(most.passing) if all(c in part.passing for part in parts)]
    if any(t is None for t in turned) or len(alone) < len(most.passing):
        return None
    if len({t.shape[0] for t in turned if t is not None}) > 1:
        return None
    both = torch.cat([t for t in turned if t is not None], -1)
    passed = [part.passed[:, [part.passing.index(c) for c in most.passing]] for part in parts]
    operations = tuple(o for part in parts for o in part.operations)
    starts = torch.tensor([0, *(int(part.origin.max()) + 1 for part in parts[:-1])]).cumsum(0)
    behind = [torch.where(p.origin < 0, -1, p.origin + start) for p, start in zip(parts, starts, strict=True)]
    return replace(
        most,
        cos=both.real,
        sin=both.imag,
        passed=torch.cat(passed, -1),
        operations=operations,
        origin=torch.cat(behind, -1),
    )


def operator(tape: Tape, cut: Cut, target: int, axes: Axes, most: int = MOST_ENTRIES) -> Operator:
    """The operator of the stretch between a cut and a target; raises `NoRotation` where it is none.

    ``most``: entries of all matrices together; more are not looked at.
    """
    try:
        matrices, numbers = matrices_of(tape, cut, target, axes, most)
    except RuntimeError as error:  # an operation of somebody's own, without a gradient
        raise NoRotation(f"its Jacobian cannot be formed: {first_line(error)}") from error
    nothing = (matrices == 0).all(-1).all(-1)
    if (nothing != nothing[:1]).any():
        raise NoRotation("some heads have padding where others have tokens")
    blocks = _blocks((matrices != 0).any(1).any(0))
    pairs, inputs, cos, sin, seconds = [], [], [], [], []
    passing, passing_inputs, zero = [], [], []
    for rows, columns in blocks:
        if not columns:
            zero.append(rows[0])
        elif len(rows) == len(columns) == 1:
            passing.append(rows[0])
            passing_inputs.append(columns[0])
        elif len(rows) == len(columns) == 2:
            turn = _turn(matrices[:, :, rows][:, :, :, columns])
            if turn is None:
                raise Mixed(f"channels {rows[0]} and {rows[1]} are mixed by no rotation", moves(matrices))
            pairs.append((rows[0], rows[1]))
            inputs.append((columns[1], columns[0]) if turn.swapped else (columns[0], columns[1]))
            cos.append(turn.cos)
            sin.append(turn.sin)
            seconds.append(turn.second)
        else:
            raise Mixed(f"{len(rows)} channels follow from {len(columns)}", moves(matrices))
    heads, tokens = matrices.shape[:2]
    none = torch.zeros(heads, 0, tokens, dtype=torch.float64)
    second = None
    if any(s is not None for s in seconds):
        both = [(c, s) if other is None else other for other, c, s in zip(seconds, cos, sin, strict=True)]
        second = (torch.stack([c for c, _ in both], 1), torch.stack([s for _, s in both], 1))
    return Operator(
        matrices.shape[2],
        matrices.shape[3],
        tuple(pairs),
        tuple(inputs),
        torch.stack(cos, 1) if cos else none,
        torch.stack(sin, 1) if sin else none,
        tuple(passing),
        tuple(passing_inputs),
        matrices[:, :, passing, passing_inputs].transpose(1, 2) if passing else none,
        numbers.amin(-1).masked_fill(nothing, -1)[:, None],
        tuple(zero),
        second,
        cut.factor,
        cut.trained,
        cut.operations,
        target,
        cut.sources,
        len(numbers[:, numbers.any(0).any(-1).int().argmax()].unique(dim=0)),
    )


def moves(matrices: Tensor) -> bool:
    """Whether the matrices differ from token to token by more than rounding."""
    apart = (matrices - matrices[:, :1]).abs().max()
    return bool(apart > 1e-9 * matrices.abs().max())


@dataclass(frozen=True)
class _Turn:
    cos: Tensor
    sin: Tensor
    swapped: bool = False
    second: tuple[Tensor, Tensor] | None = None


def _turn(blocks: Tensor) -> _Turn | None:
    """Cosine and sine of blocks ``[heads, tokens, 2, 2]``; None where they are no rotations."""
    for swapped in (False, True):
        (a, b), (c, d) = (row.unbind(-1) for row in (blocks.flip(-1) if swapped else blocks).unbind(-2))
        size = torch.hypot(a, c).amax()
        if swapped and not (c.abs() <= 1e-9 * size).any():
            continue  # a reflection is a rotation by its angle and a quarter turn, with its members exchanged
        if (a - d).abs().amax() <= 1e-9 * size and (b + c).abs().amax() <= 1e-9 * size:
            return _Turn(a, c, swapped)
    (a, b), (c, d) = (row.unbind(-1) for row in blocks.unbind(-2))
    lengths = torch.stack((torch.hypot(a, b), torch.hypot(c, d)))
    if float((lengths / lengths.amax() - 1).abs().amax()) < 1e-2:  # each member turns, but by an angle of its own
        return _Turn(a, -b, second=(d, c))
    return None


def _blocks(links: Tensor) -> list[tuple[list[int], list[int]]]:
    """Outputs and inputs that hang together, ``links [outputs, inputs]``, in the order of the outputs."""
    by_row = [set(row.nonzero().flatten().tolist()) for row in links]
    by_column = [set(column.nonzero().flatten().tolist()) for column in links.T]
    done: set[int] = set()
    blocks = []
    for first in range(len(by_row)):
        if first in done:
            continue
        rows, columns, new = {first}, set(), {first}
        while new:
            columns |= set().union(*(by_row[r] for r in new))
            new = set().union(*(by_column[c] for c in columns)) - rows if columns else set()
            rows |= new
        done |= rows
        blocks.append((sorted(rows), sorted(columns)))
    return blocks
