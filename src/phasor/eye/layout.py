"""Which layout the seen pairs have: their channels, read and written, as a `Layout`."""

from dataclasses import dataclass
from typing import Any

from ..rotary.layout import Layout
from .operator import Operator


@dataclass(frozen=True)
class Placed:
    """A layout, and which of its pairs each seen pair is; layout pairs that were not seen to turn have frequency 0."""

    layout: Layout
    pair_of: tuple[int, ...]


def placed(seen: Operator) -> Placed | None:
    """The layout with the fewest pairs that holds all seen ones; None where none does."""
    width, members = seen.channels, {c for pair in seen.pairs for c in pair}
    fewest = 2 * len(seen.pairs)
    for rotary_dim in range(fewest, width - width % 2 + 1, 2):
        for trailing in (False, True) if rotary_dim < width else (False,):
            for fields in ways(rotary_dim):
                layout = Layout(head_dim=width, rotary_dim=rotary_dim, trailing=trailing, **fields)
                inside = set(range(width)[layout.turning])
                if members <= inside and (found := _pair_of(layout, seen)) is not None:
                    return Placed(layout, found)
    return None


def wider(seen: Operator) -> tuple[Placed, ...]:
    """Layouts of all channels that hold the seen pairs, too, and others that stand: the frame's, in one picture."""
    whole = (
        [Layout(head_dim=seen.channels, **fields) for fields in ways(seen.channels)] if seen.channels % 2 == 0 else []
    )
    return tuple(Placed(layout, found) for layout in whole if (found := _pair_of(layout, seen)) is not None)


def ways(rotary_dim: int) -> list[dict[str, Any]]:
    """The fields of each layout that so many channels may have."""
    half = rotary_dim // 2
    blocks: list[dict[str, Any]] = [{"blocks": n} for n in (2, 3, 4) if half % n == 0 and half > n]
    return [{}, {"interleaved": True}, {"interleaved": True, "permuted": True}, *blocks]


def _pair_of(layout: Layout, seen: Operator) -> tuple[int, ...] | None:
    """The number of each seen pair; None where the layout writes, or reads, other channels together."""
    pairs = layout.pairs
    written = layout.written().channels()
    places = {frozenset((written[i], written[pairs + i])): i for i in range(pairs)}
    found = tuple(places.get(frozenset(pair), -1) for pair in seen.pairs)
    if -1 in found or len(set(found)) < len(found):
        return None
    apart = {b - a for a, b in seen.inputs}
    if layout.permuted or layout.interleaved:
        return found if apart == {1} else None
    # halves that were read side by side are permuted; one pair is next to its other half in both
    return found if apart != {1} or layout.rotary_dim == 2 or _side_by_side(layout) else None


def _side_by_side(layout: Layout) -> bool:
    return layout.rotary_dim == 2 * layout.blocks
