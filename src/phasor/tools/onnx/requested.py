"""At which positions a rotation is looked at, and what the inputs of its graph are for that."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...models.configs import ModelRotary
from ...rotary.axes import InterleavedSections, Sections
from ..golden.kinds import Kind, positions_of
from .branches import TOKENS, TYPES
from .find import Place
from .graph import Graph
from .run import Unread, part_of
from .sizes import Sizes

ROWS = (*range(8), 15, 31, TOKENS - 1)  # that are compared where positions are counted inside the graph


@dataclass(frozen=True)
class Asked:
    """One run: ``positions`` ``[(A,) S]``; ``inputs`` of the graph that say them; the ``sizes`` that go with both.

    ``name``: the input that holds the positions of every token, where there is one.
    """

    positions: Tensor
    inputs: dict[str, Any]
    sizes: Sizes
    name: str | None = None

    @property
    def rows(self) -> Tensor:
        """The tokens that are compared: all, or, where the graph counts them itself, those at the positions."""
        count = self.positions.shape[-1]
        return torch.arange(count) if count == self.sizes.tokens else self.positions.reshape(-1, count)[0]


def asked(
    graph: Graph, model: ModelRotary, place: Place, kind: Kind, rows: int | None, taken: dict[str, Any]
) -> list[Asked]:
    """Near, trained and far positions, in as many runs as it takes; below ``rows``, where the tables end there.

    ``taken``: conditions of branches, which are given then. `Unread` where no positions can be given, or none at which
    anything turns.
    """
    sizes = Sizes(graph, TOKENS)
    name, masks = _leaves(graph, place, sizes, taken)
    shape = None if name is None else sizes.of(name)
    if name is not None and shape is None:
        raise Unread(f"the shape of its positions {name!r} is not in the file")
    assert kind.exact is not None
    axes = kind.exact.axes.count
    by_axis = shape is not None and axes > 1 and len(shape) > 1 and shape[0] in (axes, axes + 1)
    if axes > 1 and not by_axis and not isinstance(kind.exact.axes, Sections | InterleavedSections):
        raise Unread(f"its tokens have {axes} coordinates, which are formed inside")
    if shape is None or int(np.prod(shape)) < min(sizes.tokens, 2):  # no input, or the first position alone
        numbers = [n for n in ROWS if n < min(sizes.tokens, rows or TOKENS)]
        if max(numbers) == 0:
            raise Unread("it can be looked at in position 0 only, where nothing turns")
        at = _on_axes(numbers, axes)
        zero = {} if name is None or shape is None else {name: np.zeros(shape)}
        return [Asked(at, _typed(graph, zero | _masks(masks, sizes)) | taken, sizes)]
    assert name is not None
    free = isinstance(graph.shapes[name][-1], str)
    found = []
    for numbers in _numbers(kind, model, None if free else shape[-1], rows):
        sizes = Sizes(graph, len(numbers))
        full = sizes.of(name)
        assert full is not None
        at = positions_of(kind, model, numbers) if by_axis else _on_axes(numbers, axes)
        inputs = {name: _spread(at.numpy(), full, by_axis), **_masks(masks, sizes)}
        found.append(Asked(at, _typed(graph, inputs) | taken, sizes, name))
    return found


def _on_axes(numbers: list[int], axes: int) -> Tensor:
    """Positions of text: all coordinates are equal."""
    at = torch.tensor(numbers)
    return at if axes == 1 else at.expand(axes, -1).contiguous()


def _masks(names: set[str], sizes: Sizes) -> dict[str, Any]:
    return {name: np.ones(sizes.of(name) or (1, sizes.tokens)) for name in names}


def _typed(graph: Graph, inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value.astype(TYPES[graph.kinds[name]]) for name, value in inputs.items()}


def _leaves(graph: Graph, place: Place, sizes: Sizes, taken: dict[str, Any]) -> tuple[str | None, set[str]]:
    """The input that holds positions, and those that are masks."""
    _, needed, _ = part_of(graph, place.after, {place.before, *taken}, sizes)
    if odd := sorted(n for n in needed if graph.kinds.get(n) not in TYPES):
        raise Unread(f"it depends on the input {odd[0]!r}, which holds no integers")
    masks = {n for n in needed if "mask" in n.lower()}
    if len(needed - masks) > 1:
        raise Unread(f"it depends on the inputs {', '.join(map(repr, sorted(needed)))}: which of them are positions?")
    return next(iter(needed - masks), None), masks


def _numbers(kind: Kind, model: ModelRotary, count: int | None, rows: int | None) -> list[list[int]]:
    """Near, trained and far positions, inside of tables and regimes: in one list, or in lists of ``count``."""
    at = positions_of(kind, model, None)
    usual = (at if at.ndim == 1 else at[0]).tolist()
    below = min(rows or 2**40, kind.seq_len or 2**40)
    if rows is not None:
        below = max(below - (3 * kind.exact.axes.count if kind.exact else 0), 1)
        usual += [below // 2, below - 1]
    usual = sorted({int(n) for n in usual if n < below})
    if count is None:
        return [usual]
    more = [n for n in range(len(usual) + count) if n not in usual and n < below]
    usual += more[: -len(usual) % count]
    return [usual[i : i + count] for i in range(0, len(usual) - count + 1, count)]


def _spread(at: np.ndarray, shape: tuple[int, ...], by_axis: bool) -> np.ndarray:
    """Positions ``[(A,) S]`` in the shape of an input; a row more than axes is that of the text, in front."""
    if not by_axis:
        return np.broadcast_to(at if at.ndim == 1 else at[0], shape).astype(np.int64)
    rows = at if shape[0] == len(at) else np.concatenate((at[:1], at))
    middle = [1] * (len(shape) - 2)
    return np.broadcast_to(rows.reshape(shape[0], *middle, -1), shape).astype(np.int64)
