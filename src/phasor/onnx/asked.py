"""At which positions a rotation is looked at, and what the inputs of its graph are for that."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..axes import InterleavedSections, Sections
from ..configs import ModelRotary
from ..golden.kinds import Kind, positions_of
from .find import Place
from .graph import Graph
from .run import Sizes, Unread, part_of

TOKENS = 64  # where positions are counted inside the graph: rows to look at, and those that are compared
ROWS = (*range(8), 15, 31, TOKENS - 1)
TYPES = {6: np.int32, 7: np.int64, 9: np.bool_}  # as TensorProto.DataType numbers them


@dataclass(frozen=True)
class Asked:
    """``positions`` ``[(A,) S]``; ``inputs`` of the graph that say them; the ``sizes`` that go with both."""

    positions: Tensor
    inputs: dict[str, Any]
    sizes: Sizes

    @property
    def rows(self) -> Tensor:
        """The tokens that are compared: all, or, where the graph counts them itself, those at the positions."""
        count = self.positions.shape[-1]
        return torch.arange(count) if count == self.sizes.tokens else self.positions.reshape(-1, count)[0]


def asked(graph: Graph, model: ModelRotary, place: Place, kind: Kind, rows: int | None) -> Asked:
    """Near, trained and far positions; below ``rows``, where the tables end there. `Unread` where none can be given."""
    sizes = Sizes(graph, TOKENS)
    name, masks = _leaves(graph, place, sizes)
    shape = None if name is None else sizes.shape(graph.shapes.get(name))
    if name is not None and shape is None:
        raise Unread(f"the shape of its positions {name!r} is not in the file")
    assert kind.exact is not None
    axes = kind.exact.axes.count
    by_axis = shape is not None and axes > 1 and len(shape) > 1 and shape[0] in (axes, axes + 1)
    if axes > 1 and not by_axis and not isinstance(kind.exact.axes, Sections | InterleavedSections):
        raise Unread(f"its tokens have {axes} coordinates, which are formed inside")
    counted = shape is None or int(np.prod(shape)) < min(sizes.tokens, 2)  # no input, or the first position alone
    if counted:
        numbers = [n for n in ROWS if n < min(sizes.tokens, rows or TOKENS)]
    else:
        free = isinstance(graph.shapes[name][-1], str)  # type: ignore[index]
        numbers = _numbers(kind, model, None if free else shape[-1], rows)  # type: ignore[index]
        sizes = Sizes(graph, len(numbers))
    at = positions_of(kind, model, numbers)
    if axes > 1 and not by_axis:  # text alone: all coordinates are equal
        at = torch.tensor(numbers).expand(axes, -1).contiguous()
    inputs: dict[str, Any] = {mask: np.ones(sizes.shape(graph.shapes.get(mask)) or (1, sizes.tokens)) for mask in masks}
    if name is not None:
        full = sizes.shape(graph.shapes[name])
        assert full is not None
        inputs[name] = np.zeros(full) if counted else _spread(at.numpy(), full, by_axis)
    return Asked(at, {n: value.astype(TYPES[graph.kinds[n]]) for n, value in inputs.items()}, sizes)


def _leaves(graph: Graph, place: Place, sizes: Sizes) -> tuple[str | None, set[str]]:
    """The input that holds positions, and those that are masks."""
    _, needed, _ = part_of(graph, place.after, {place.before}, sizes)
    if odd := sorted(n for n in needed if graph.kinds.get(n) not in TYPES):
        raise Unread(f"it depends on the input {odd[0]!r}, which holds no integers")
    masks = {n for n in needed if "mask" in n.lower()}
    if len(needed - masks) > 1:
        raise Unread(f"it depends on the inputs {', '.join(map(repr, sorted(needed)))}: which of them are positions?")
    return next(iter(needed - masks), None), masks


def _numbers(kind: Kind, model: ModelRotary, count: int | None, rows: int | None) -> list[Any]:
    """Positions to ask for: near, trained and far, as many as there is room for, and inside of tables and regimes."""
    at = positions_of(kind, model, None)
    usual = (at if at.ndim == 1 else at[0]).tolist()
    below = min(rows or 2**40, kind.seq_len or 2**40)
    if rows is not None:
        below = max(below - (3 * kind.exact.axes.count if kind.exact else 0), 1)
        usual += [below // 2, below - 1]
    usual = sorted({n for n in usual if n < below})
    if count is None or count == len(usual):
        return usual
    if count < len(usual):
        return [usual[round(i * (len(usual) - 1) / max(count - 1, 1))] for i in range(count)]
    more = (n for n in range(2 * count + 16) if n not in usual and n < below)
    return sorted([*usual, *(n for n, _ in zip(more, range(count - len(usual)), strict=False))])


def _spread(at: np.ndarray, shape: tuple[int, ...], by_axis: bool) -> np.ndarray:
    """Positions ``[(A,) S]`` in the shape of an input; a row more than axes is that of the text, in front."""
    if not by_axis:
        return np.broadcast_to(at if at.ndim == 1 else at[0], shape).astype(np.int64)
    rows = at if shape[0] == len(at) else np.concatenate((at[:1], at))
    middle = [1] * (len(shape) - 2)
    return np.broadcast_to(rows.reshape(shape[0], *middle, -1), shape).astype(np.int64)
