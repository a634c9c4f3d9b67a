"""The permutation between two layouts: of one head, and of a whole axis of a tensor that holds many.

``out[j] = in[order[j]]``. Channels that do not rotate, values, gates and padding keep their places.
The order from A to B and the order from B to A are inverses of each other, and not equal: halves to interleaved, done
twice, is a third layout.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from ...models.weights import Piece
from ...rotary.layout import Layout

if TYPE_CHECKING:  # numpy takes longer to load than a plan to be made
    import numpy as np
    import numpy.typing as npt
    import torch

    Order = npt.NDArray[np.int64]

INT64 = "q"  # array's letter
PAIRS = ("halves", "interleaved")
SURE = 4.0  # standard errors by which a statistic must be off before a layout is believed
WORDS = (*PAIRS, "native")


def with_pairs(layout: Layout, word: str) -> Layout:
    """The layout with its pairs as ``word`` says: ``"halves"``, ``"interleaved"``, or ``"native"``, as they are read.

    >>> with_pairs(Layout(head_dim=8, rotary_dim=4), "interleaved").interleaved
    True
    """
    if word not in WORDS:
        raise ValueError(f"layout must be one of {', '.join(map(repr, WORDS))}, got {word!r}")
    if word == "native":
        return layout.read()
    return replace(layout, interleaved=word == "interleaved", blocks=1, permuted=False)


def word_of(layout: Layout) -> str:
    """The word for a layout's pairs; that of other layouts than halves and interleaved is ``"native"``."""
    return "native" if layout.blocks > 1 else "interleaved" if layout.interleaved else "halves"


def rotated_channels(layout: Layout) -> Layout:
    """The layout of the channels that rotate alone."""
    return replace(layout, head_dim=layout.rotary_dim, trailing=False, permuted=False)


def order_of(pieces: Iterable[Piece], size: int, source: Layout, target: Layout) -> Order:
    """The order of all ``size`` indices of the axis on which ``pieces`` of one tensor lie (`phasor.weights.pieces`).

    Raises ``ValueError`` for layouts of different widths, and for a piece that is not as wide as they or lies outside.

    >>> halves, interleaved = Layout(head_dim=4), Layout(head_dim=4, interleaved=True)
    >>> piece = Piece("k_proj.weight", "k", "weight", starts=(0, 4), width=4)
    >>> order_of([piece], 10, interleaved, halves).tolist()  # two heads, and two rows that stay
    [0, 2, 1, 3, 4, 6, 5, 7, 8, 9]
    """
    import numpy as np

    return np.array(indices_of(pieces, size, source, target))


def indices_of(pieces: Iterable[Piece], size: int, source: Layout, target: Layout) -> array[int]:
    """`order_of`, without numpy."""
    inside = rotated_channels(source).permutation(rotated_channels(target))
    order = array(INT64, range(size))
    for piece in pieces:
        if piece.width != len(inside) or not all(0 <= s <= size - piece.width for s in piece.starts):
            raise ValueError(
                f"{piece.tensor} must have heads of {len(inside)} channels that rotate among {size}, "
                f"got {piece.width} from {list(piece.starts)[:8]}"
            )
        for start in piece.starts:
            order[start : start + piece.width] = array(INT64, [start + channel for channel in inside])
    return order


def inverse(order: Order) -> Order:
    """The order that undoes another.

    >>> import numpy as np
    >>> inverse(np.array([2, 0, 1])).tolist()
    [1, 2, 0]
    """
    import numpy as np

    undone = np.empty_like(order)
    undone[order] = np.arange(len(order))
    return undone


def reorder(tensor: torch.Tensor, order: Order, axis: int = 0) -> torch.Tensor:
    """A copy of a tensor with its indices along ``axis`` in another order; any dtype, to the bit.

    >>> import numpy as np, torch
    >>> reorder(torch.tensor([10, 11, 12]), np.array([2, 0, 1])).tolist()
    [12, 10, 11]
    """
    import torch

    return tensor.index_select(axis, torch.from_numpy(order).to(tensor.device))
