"""Two sequences at once, at positions of their own."""

import numpy as np

from .graph import Graph
from .library import library
from .requested import Asked
from .run import Unread, run
from .sizes import Shape, Sizes


def own_positions(graph: Graph, before: str, after: str, shape: Shape, axis: int, one: Asked) -> bool:
    """Whether the second of two sequences is turned as it is alone: the same heads and positions, backwards.

    ``shape``: that of what is turned, ``axis`` its tokens, when there is one sequence. True where the graph takes one
    sequence, or the same positions for all. `Unread` where two of them do not run.
    """
    names = graph.shapes.get(one.name, ()) if one.name else ()
    if len(names) < 2 or not isinstance(names[-2], str):
        return True
    two = Sizes(graph, one.sizes.tokens, names[-2])
    double = two.of(before)
    apart = [] if double is None else [i for i, (a, b) in enumerate(zip(shape, double, strict=False)) if a != b]
    if double is None or len(double) != len(shape) or len(apart) != 1 or double[apart[0]] != 2 * shape[apart[0]]:
        raise Unread("a batch of two has no shape of its own")
    x = np.random.default_rng(0).standard_normal(shape)
    x = x.astype(library().helper.tensor_dtype_to_np_dtype(graph.kinds.get(before, 1)))
    inputs = {name: _twice(graph, name, value, names[-2], one.name) for name, value in one.inputs.items()}
    alone = run(graph, after, {before: x, **one.inputs}, one.sizes)
    both = run(graph, after, {before: _with_reverse(x, axis, apart[0]), **inputs}, two)
    if alone.size != x.size or both.size != 2 * x.size:
        raise Unread("a batch of two has a result of another size")
    wanted = _with_reverse(alone.reshape(shape), axis, apart[0])
    return bool(np.allclose(both.reshape(double), wanted, rtol=1e-3, atol=1e-4, equal_nan=True))


def _twice(graph: Graph, name: str, value: np.ndarray, batch: str, positions: str | None) -> np.ndarray:
    """An input of two sequences: positions backwards in the second, all else as in the first."""
    sizes = graph.shapes.get(name, ())
    if batch not in sizes:
        return value
    along = sizes.index(batch)
    return _with_reverse(value, -1, along) if name == positions else np.concatenate((value, value), along)


def _with_reverse(x: np.ndarray, axis: int, batch: int) -> np.ndarray:
    return np.concatenate((x, np.flip(x, axis)), batch)
