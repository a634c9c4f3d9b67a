"""Where the keys of a cache come from: what stands in memory unrounded by any move, so that no move adds to another."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..rotary.apply.move import moved, rotated_by
from ..rotary.apply.relative_rotation import check_distance
from ..rotary.rotation import Rotation
from ..rotary.spec import RotarySpec

Regime = RotarySpec | None  # None: raw keys, which no spec has rotated


@dataclass(frozen=True)
class Origin:
    """Keys as they were before any move: raw, or as they were first rotated, with the positions they had then.

    - ``slots`` ``[M]``: which tokens of the cache these are, rising; ``keys`` ``[B, H, M, D]``.
    - ``positions`` ``[(axes,) B, M]`` and ``regime`` ``[M]``, the number of a spec in ``regimes``.
    """

    slots: Tensor
    keys: Tensor
    positions: Tensor
    regime: Tensor
    regimes: tuple[Regime, ...]

    @classmethod
    def of(cls, keys: Tensor, positions: Tensor, regime: Regime) -> "Origin":
        """Of keys that all stand where one regime put them."""
        count, device = keys.shape[-2], keys.device
        slots = torch.arange(count, device=device)
        return cls(slots, keys, positions, torch.zeros(count, dtype=torch.int16, device=device), (regime,))

    def __len__(self) -> int:
        return len(self.slots)

    def take(self, entries: Tensor, slots: Tensor) -> "Origin":
        """Some of its entries, as the tokens ``slots``."""
        return replace(
            self,
            slots=slots,
            keys=self.keys.index_select(-2, entries),
            positions=self.positions.index_select(-1, entries),
            regime=self.regime.index_select(0, entries),
        )

    def entries_of(self, slots: Tensor, length: int) -> Tensor:
        """For each of ``slots`` of a cache with ``length`` tokens its entry, or -1."""
        entry = torch.full((length,), -1, device=slots.device)
        entry[self.slots] = torch.arange(len(self), device=slots.device)
        return entry[slots]

    def further(self, offset: int) -> "Origin":
        """Of tokens that stand ``offset`` further."""
        return replace(self, slots=self.slots + offset)

    def then(self, other: "Origin") -> "Origin":
        """Both."""
        regimes = (*self.regimes, *(r for r in other.regimes if r not in self.regimes))
        number = torch.tensor([regimes.index(r) for r in other.regimes], dtype=torch.int16, device=self.slots.device)
        return Origin(
            torch.cat((self.slots, other.slots)),
            torch.cat((self.keys, other.keys), -2),
            torch.cat((self.positions, other.positions), -1),
            torch.cat((self.regime, number[other.regime.long()])),
            regimes,
        )

    def rows(self, rows: Tensor) -> "Origin":
        """Of other rows of the batch."""
        return replace(self, keys=self.keys.index_select(0, rows), positions=self.positions.index_select(-2, rows))

    def at(self, spec: RotarySpec, positions: Tensor, log_scale: Tensor | None) -> Tensor:
        """Its keys as ``spec`` has them at ``positions``: each rotated once, those that stand there already not at all.

        Raises ``ValueError`` for a move beyond 2**31.
        """
        check_distance(self.positions, positions, "positions before and after a move")
        of_regimes = (self._of_one(number, spec, positions, log_scale) for number in range(len(self.regimes)))
        present = [part for part in of_regimes if part is not None]
        if len(present) == 1:
            return present[0][1]
        keys = torch.empty_like(self.keys)
        for entries, part in present:
            keys.index_copy_(-2, entries, part)
        return keys

    def _of_one(
        self, number: int, spec: RotarySpec, positions: Tensor, log_scale: Tensor | None
    ) -> tuple[Tensor, Tensor] | None:
        """The entries of one regime and their keys moved; None where there are none."""
        regime = self.regimes[number]
        one = self if len(self.regimes) == 1 else None
        entries = torch.arange(len(self), device=self.slots.device) if one else (self.regime == number).nonzero()[:, 0]
        if not len(entries):
            return None
        one = one or self.take(entries, self.slots)
        to = positions.index_select(-1, entries) if one is not self else positions
        if regime is None:
            rotation = Rotation.at(spec, to, log_scale=log_scale, dtype=self.keys.dtype)
            return entries, rotated_by(one.keys, rotation, "bhsd", "auto", None)
        keys = moved(one.keys, regime, one.positions, spec, to, log_scale)
        if spec.angles != "exact":  # whose rotation by no distance may round
            keys = torch.where(one.standing(spec, to)[:, None], one.keys, keys)
        return entries, keys

    def standing(self, spec: RotarySpec, positions: Tensor) -> Tensor:
        """``[M]``: whether a token, in all rows, is where its key was first rotated, so that nothing moves it."""
        here = torch.tensor([regime == spec for regime in self.regimes], device=self.slots.device)
        same = (self.positions == positions).flatten(0, -2).all(0)
        return same & here[self.regime.long()]

    def moved_to(self, spec: RotarySpec, positions: Tensor, raw: bool) -> "Origin | None":
        """What must be kept of a source once its keys stand at ``positions``: nothing of those that are now as it has
        them, and raw keys only where they were asked for.
        """
        if raw:
            return self
        if self.regimes == (None,):
            return None
        elsewhere = ~self.standing(spec, positions)
        if None in self.regimes:
            elsewhere &= self.regime != self.regimes.index(None)
        entries = elsewhere.nonzero()[:, 0]
        if len(entries) == len(self):
            return self
        return self.take(entries, self.slots[entries]) if len(entries) else None
