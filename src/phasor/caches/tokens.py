"""The tokens that a ledger holds: keys, values, positions, and what moved keys come from."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from ..support.tracing import readable
from .origin import Origin


@dataclass(frozen=True)
class Tokens:
    """What a ledger holds; a new one for every change, so that copies cost nothing and errors change nothing."""

    keys: Tensor
    values: Tensor | None
    positions: Tensor
    origin: Origin | None  # of tokens that have moved, and of all where raw keys are kept
    parents: tuple[int, ...] = ()  # of the drafts, the last tokens

    def __len__(self) -> int:
        return self.keys.shape[-2]

    def take(self, slots: Tensor) -> "Tokens":
        """The tokens ``slots``, in that order."""
        origin = self.origin
        if origin is not None:
            entries = origin.entries_of(slots, len(self))
            moved = (entries >= 0).nonzero()[:, 0]
            origin = origin.take(entries[moved], moved) if len(moved) else None
        return replace(
            self,
            keys=self.keys.index_select(-2, slots),
            values=None if self.values is None else self.values.index_select(-2, slots),
            positions=self.positions.index_select(-1, slots),
            origin=origin,
        )

    def between(self, start: int, stop: int) -> "Tokens":
        """Tokens next to each other, as views."""
        origin = self.origin
        if origin is not None:
            inside = ((origin.slots >= start) & (origin.slots < stop)).nonzero()[:, 0]
            origin = origin.take(inside, origin.slots[inside] - start) if len(inside) else None
        return replace(
            self,
            keys=self.keys[..., start:stop, :],
            values=None if self.values is None else self.values[..., start:stop, :],
            positions=self.positions[..., start:stop],
            origin=origin,
        )

    def then(self, new: "Tokens") -> "Tokens":
        """These and the new ones behind them."""
        origin = self.origin
        if new.origin is not None:
            moved = new.origin.further(len(self))
            origin = moved if origin is None else origin.then(moved)
        return Tokens(
            torch.cat((self.keys, new.keys), -2),
            None if self.values is None or new.values is None else torch.cat((self.values, new.values), -2),
            torch.cat((self.positions, new.positions), -1),
            origin,
        )


def check_distinct_after(before: Tensor | None, new: Tensor) -> None:
    """`check_distinct` of both, soon done where the new ones lie beyond, as they do while a sequence grows."""
    if not new.is_cpu or not readable(new) or not new.numel():
        return
    along = new if new.ndim == 2 else new[0]
    rising = bool((along.diff(dim=-1) > 0).all())
    if before is None or not before.numel():
        return None if rising else check_distinct(new)
    last = before if before.ndim == 2 else before[0]
    beyond = bool((along.amin(-1) > last.amax(-1)).all())
    if beyond:
        return None if rising else check_distinct(new)
    return check_distinct(torch.cat((before, new), -1))


def check_distinct(positions: Tensor) -> None:
    """``ValueError`` where two tokens of a row share a position, on all axes."""
    if not positions.is_cpu or not readable(positions):
        return
    for row, own in enumerate(positions.unbind(-2)):
        each, counts = own.unique(dim=-1, return_counts=True)
        if each.shape[-1] < own.shape[-1]:
            raise ValueError(
                f"positions must belong to one token each, got {each[..., counts > 1][..., 0].tolist()} twice in row "
                f"{row}; evict or move the other token first"
            )
