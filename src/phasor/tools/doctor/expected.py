"""What the operators of a way must be: those of one plain call at the same positions, and those of a spec."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from ...eye.operator import Operator, Pairs
from ...eye.sites import Side
from ...rotary.spec import RotarySpec
from .deviation import BEFORE, around
from .ways import FARTHEST

NOTHING = 1e-9
TELLING = 4  # pairs: of so many no two positions are alike


@dataclass(frozen=True, eq=False)
class Reference:
    """One side of one attention in a plain call, at positions 0, 1, 2, ...

    ``spec``: what says the rest, if known, where all positions are ``moved`` by so many; ``tempered``: but for a number
    that grows with the position, by which a config multiplies queries.
    """

    side: Side
    spec: RotarySpec | None = None
    moved: int = 0
    tempered: bool = False

    @cached_property
    def operator(self) -> Operator:
        assert self.side.operator is not None
        return self.side.operator

    @property
    def pairs(self) -> Pairs:
        return self.operator.pairs

    @cached_property
    def known(self) -> Tensor:
        """``[heads, pairs, positions]``."""
        found = self.operator.of_pairs(self.operator.pairs, self.operator.inputs)
        assert found is not None
        return found

    @property
    def count(self) -> int:
        return int(self.known.shape[-1])

    @cached_property
    def others(self) -> Tensor:
        """`known`, and what would be at other positions."""
        return around(self.known)

    def of(self, operator: Operator, rows: int) -> Tensor | None:
        """``[rows, heads, pairs, tokens]`` of another call; None for what is no rotation of the same pairs."""
        found = operator.of_pairs(self.operator.pairs, self.operator.inputs)
        return None if found is None or len(found) % rows else torch.unflatten(found, 0, (rows, -1))

    def passing(self, operator: Operator, rows: int, live: Tensor, within: float) -> Tensor | None:
        """``[rows, tokens]``: where channels that pass are multiplied otherwise than here; None where they turn."""
        found = operator.of_passing(self.operator.passing)
        if found is None:
            return None
        seen = torch.unflatten(found, 0, (rows, -1))
        must = _repeated(self.operator.passed[..., :1], seen.shape[1])
        if not torch.allclose(self.operator.passed, self.operator.passed[..., :1], rtol=within):
            return torch.zeros_like(live)  # a temperature for each token: not known at others
        near = (seen - must).abs() <= within * must.abs() + NOTHING
        return ~near.all(2).all(1) & live

    def at(self, positions: Tensor, lengths: Tensor, heads: int) -> Tensor | None:
        """``[rows, heads, pairs, tokens]`` at ``positions [rows, tokens]`` in calls of ``lengths [tokens]``.

        None where nothing says it.
        """
        inside = positions.clamp(-BEFORE, self.count - 1)
        there = self.others[..., inside + BEFORE].movedim(2, 0)
        outside = positions >= self.count
        if self.spec is not None and self.spec.length_dependent:
            outside = outside | (self._regime(lengths) != self._regime(torch.tensor(self.count)))
        if bool(outside.any()):
            beyond = None if self.spec is None else self._by(self.spec, positions + self.moved, lengths)
            if beyond is None:
                return None
            there = torch.where(outside[:, None, None], beyond, there)
        return _repeated(there, heads, 1)

    def _regime(self, lengths: Tensor) -> Tensor:
        assert self.spec is not None and self.spec.scaling is not None
        trained = self.spec.scaling.trained_length or 0
        longer = lengths > trained
        return longer if self.spec.scaling.two_regimes else torch.where(longer, lengths, 0)

    def place(self, turned: Tensor, within: float) -> int | None:
        """The position by which a spec turns pairs so, ``[pairs]``, of all those that are tried; None for no one."""
        rates = None if self.spec is None or self.spec.length_dependent else rates_of(self.spec, self.pairs)
        if rates is None or len(rates) < TELLING:
            return None
        angles = rates[:, None] * torch.arange(FARTHEST)
        apart = (torch.polar(torch.ones_like(angles), angles) - (turned / turned.abs())[:, None]).abs().amax(0)
        at = int(apart.argmin())
        return at if float(apart[at]) <= 2 * within else None

    def by_spec(self, spec: RotarySpec, moved: int = 0) -> Tensor | None:
        """``[1, heads, pairs, tokens]``: what the plain call itself must do by a spec, but for one factor on all."""
        at = torch.arange(self.count)
        return self._by(spec, at[None] + moved, torch.full_like(at, self.count))

    def _by(self, spec: RotarySpec, positions: Tensor, lengths: Tensor) -> Tensor | None:
        """`at`, by a spec alone; as long as the plain call makes what it turns."""
        if spec.learned or spec.second is not None:
            return None
        scale = self.known.abs().median().expand(self.known.shape[:2])
        if self.side.trained:  # each head by a number of its own, which may negate
            scale = self.known.abs().median(-1).values * self.known[..., 0].real.sign()
        scale = scale / spec.attention_factor(self.count)
        found = torch.zeros(len(positions), *scale.shape, positions.shape[1], dtype=torch.complex128)
        for length in lengths.unique().tolist():
            rates = rates_of(spec, self.pairs, length)
            if rates is None:
                return None
            angles = positions[:, None, None].double() * rates[:, None]
            here = torch.polar(torch.full_like(angles, spec.attention_factor(length)), angles) * scale[..., None]
            found = torch.where(lengths == length, here, found)
        return found


def _repeated(values: Tensor, heads: int, axis: int = 0) -> Tensor:
    """Values of key heads, once for each of so many query heads, or the reverse."""
    own = values.shape[axis]
    if heads >= own:
        return values.repeat_interleave(heads // own, axis)
    return values.index_select(axis, torch.arange(0, own, own // heads))


def speeds(spec: RotarySpec, length: int | None = None) -> list[float]:
    """Radians per position of each pair of a spec in text, where all axes of a position are one number."""
    sign = -spec.position_scale if spec.reverse else spec.position_scale
    weights = [sum(column) for column in zip(*spec.axes.weights(spec.pairs), strict=True)]
    return [sign * f * w for f, w in zip(spec.inv_freq(length).tolist(), weights, strict=True)]


def rates_of(spec: RotarySpec, pairs: Pairs, length: int | None = None) -> Tensor | None:
    """`speeds` of ``pairs`` of channels; None where the spec pairs others."""
    channels, values, known = spec.layout.written().channels(), speeds(spec, length), {}
    for a, b, value in zip(channels, channels[len(values) :], values, strict=False):
        known[a, b], known[b, a] = value, -value
    if not set(pairs) <= set(known):
        return None
    return torch.tensor([known[pair] for pair in pairs], dtype=torch.float64)
