"""How the axes of a position lie on the pairs of a tower's head: head width -> fields of a `RotarySpec`.

``h``, ``w``, ``t`` are rows, columns and frames. A ladder of ``n`` rungs is ``base ** (-i / n)``.
"""

from collections.abc import Callable
from typing import Any

from ...rotary.axes import Alternating, Axial, Listed

Plane = Callable[[int], dict[str, Any]]


def plane(head_dim: int) -> dict[str, Any]:
    """The first half of the pairs follows the first coordinate, the second half the other; halves (Qwen2-VL).

    >>> plane(8)
    {'axes': Axial(sizes=(2, 2))}
    """
    n = quarter(head_dim)
    return {"axes": Axial((n, n))}


def plane_swapped(head_dim: int) -> dict[str, Any]:
    """Positions are ``(h, w)``, and the block of ``w`` comes first; halves (Step-3.7)."""
    n = quarter(head_dim)
    return {"axes": Listed((1,) * n + (0,) * n, tuple((i, n) for i in range(n)) * 2)}


def plane_alternating(head_dim: int) -> dict[str, Any]:
    """Positions are ``(h, w)``, and the pairs follow ``w, h, w, h, …``, each on a ladder of its own (Kimi-K2.5)."""
    quarter(head_dim)
    return {"axes": Alternating((1, 0), own_ladders=True)}


def one_ladder(head_dim: int) -> dict[str, Any]:
    """One ladder over the whole head: ``h`` takes its even rungs, ``w`` the odd ones; halves (Pixtral)."""
    n = quarter(head_dim)
    even, odd = (tuple((2 * i + first, 2 * n) for i in range(n)) for first in (0, 1))
    return {"axes": Listed((0,) * n + (1,) * n, even + odd)}


def space(head_dim: int) -> dict[str, Any]:
    """``(t, h, w)`` own a block of pairs each, and the channels that are left pass through; halves (MiniMax-M3).

    >>> space(80)
    {'axes': Axial(sizes=(13, 13, 13)), 'rotary_dim': 78}
    """
    n = head_dim // 3 // 2
    return {"axes": Axial((n, n, n)), "rotary_dim": 6 * n}


def space_tiled(head_dim: int) -> dict[str, Any]:
    """V-JEPA 2: ``(t, h, w)`` own a segment of ``n`` neighbouring pairs each, but its code tiles the cosines.

    Channel ``c`` of a segment therefore rotates by rung ``c mod n``, the two members of a pair by different angles.
    """
    n = head_dim // 3 // 2
    axis = tuple(a for a in range(3) for _ in range(n))
    first, second = (tuple(((2 * i + member) % n, n) for i in range(n)) * 3 for member in (0, 1))
    return {"axes": Listed(axis, first), "second": Listed(axis, second), "interleaved": True, "rotary_dim": 6 * n}


def quarter(head_dim: int) -> int:
    """Pairs per axis for two axes; raises ``ValueError`` unless they fill the head.

    >>> quarter(10)
    Traceback (most recent call last):
    ValueError: head_dim must be a multiple of 4, two axes of whole pairs, got 10
    """
    if head_dim < 4 or head_dim % 4:
        raise ValueError(f"head_dim must be a multiple of 4, two axes of whole pairs, got {head_dim}")
    return head_dim // 4
