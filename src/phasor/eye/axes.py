"""Which scheme of axes the pairs follow: those of `phasor.axes` that give each pair the axis it was seen to follow."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ..rotary.axes import Alternating, Axes, Axial, InterleavedSections, Listed, OneAxis, Sections


def schemes(axis_of_pair: Sequence[int], values: Sequence[float], count: int) -> Iterator[Axes]:
    """The simplest first; ``values`` are the frequencies of the pairs, ``count`` the numbers that a position has.

    >>> [type(axes).__name__ for axes in schemes((0, 0, 1, 1), (1.0, 0.1, 1.0, 0.1), 2)]
    ['Sections', 'Axial', 'Listed', 'Listed', 'Listed']
    """
    axis, pairs = tuple(axis_of_pair), len(axis_of_pair)
    if count == 1:
        yield OneAxis()
        return
    sizes = tuple(Counter(axis)[a] for a in range(count))
    makers = [
        lambda: Sections(sizes),
        lambda: InterleavedSections(sizes),
        lambda: Axial(sizes),
        lambda: Alternating(axis[:count]),
        lambda: Alternating(axis[:count], own_ladders=True),
        lambda: Listed(axis, axes=count),
        lambda: Listed(axis, _own_rungs(axis, values), axes=count),
        lambda: Listed(axis, _shared_rungs(values), axes=count),
    ]
    for make in makers:
        try:
            scheme = make()
            if scheme.axis_of_pair(pairs) == axis:
                yield scheme
        except ValueError:
            continue


def _own_rungs(axis: tuple[int, ...], values: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """A ladder for each axis, which its pairs climb in the order of their frequencies, the fastest first."""
    ladders = {
        a: sorted({abs(v) for v, other in zip(values, axis, strict=True) if other == a})[::-1] for a in set(axis)
    }
    return tuple((ladders[a].index(abs(v)), len(ladders[a])) for v, a in zip(values, axis, strict=True))


def _shared_rungs(values: Sequence[float]) -> tuple[tuple[int, int], ...]:
    """One ladder for all, climbed in the order of the frequencies: axes that share out its rungs (Pixtral)."""
    ladder = sorted({abs(value) for value in values}, reverse=True)
    return tuple((ladder.index(abs(value)), len(ladder)) for value in values)
