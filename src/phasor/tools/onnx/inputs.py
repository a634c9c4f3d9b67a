"""What the inputs of a graph are, so that one rotation of it can be run: at which positions, and by which tables."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...models.configs import ModelRotary
from ...rotary.axes import InterleavedSections, Sections
from ..golden.layer_kinds import Kind, positions_of, trained_length
from .graph import Graph
from .rotations import RotationNode
from .run import NotShown, part_of, run
from .shapes import Sizes

TYPES = {6: np.int32, 7: np.int64, 9: np.bool_}  # as TensorProto.DataType numbers them
TOKENS = 64  # of a sequence that is looked at where nothing says another length
LONGEST = 2**24  # tokens: inputs of so many are formed to see what follows from them
ROWS = (*range(8), 15, 31, TOKENS - 1)  # that are compared where positions are counted inside the graph


@dataclass(frozen=True)
class RunInputs:
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


def inputs_of_runs(
    graph: Graph, model: ModelRotary, node: RotationNode, kind: Kind, rows: int | None, taken: dict[str, Any]
) -> list[RunInputs]:
    """Near, trained and far positions, in as many runs as it takes; below ``rows``, where the tables end there.

    ``taken``: values of the conditions of branches. `NotShown` where no positions can be given, or only position 0.
    """
    sizes = Sizes(graph, TOKENS)
    name, masks = _leaves(graph, node, sizes, taken)
    shape = None if name is None else sizes.of(name)
    if name is not None and shape is None:
        raise NotShown(f"the shape of its positions {name!r} is not in the file")
    assert kind.exact is not None
    axes = kind.exact.axes.count
    by_axis = shape is not None and axes > 1 and len(shape) > 1 and shape[0] in (axes, axes + 1)
    if axes > 1 and not by_axis and not isinstance(kind.exact.axes, Sections | InterleavedSections):
        raise NotShown(f"its tokens have {axes} coordinates, which are formed inside")
    if shape is None or int(np.prod(shape)) < min(sizes.tokens, 2):  # no input, or the first position alone
        numbers = [n for n in ROWS if n < min(sizes.tokens, rows or TOKENS)]
        if max(numbers) == 0:
            raise NotShown("it can be run at position 0 only, where nothing rotates")
        at = _on_axes(numbers, axes)
        zero = {} if name is None or shape is None else {name: np.zeros(shape)}
        return [RunInputs(at, _typed(graph, zero | _masks(masks, sizes)) | taken, sizes)]
    assert name is not None
    free = isinstance(graph.shapes[name][-1], str)
    runs = []
    for numbers in _numbers(kind, model, None if free else shape[-1], rows):
        sizes = Sizes(graph, len(numbers))
        full = sizes.of(name)
        assert full is not None
        at = positions_of(kind, model, numbers) if by_axis else _on_axes(numbers, axes)
        inputs = {name: _spread(at.numpy(), full, by_axis), **_masks(masks, sizes)}
        runs.append(RunInputs(at, _typed(graph, inputs) | taken, sizes, name))
    return runs


def _on_axes(numbers: list[int], axes: int) -> Tensor:
    """Positions of text: all coordinates are equal."""
    at = torch.tensor(numbers)
    return at if axes == 1 else at.expand(axes, -1).contiguous()


def _masks(names: set[str], sizes: Sizes) -> dict[str, Any]:
    return {name: np.ones(sizes.of(name) or (1, sizes.tokens)) for name in names}


def _typed(graph: Graph, inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value.astype(TYPES[graph.kinds[name]]) for name, value in inputs.items()}


def _leaves(graph: Graph, node: RotationNode, sizes: Sizes, taken: dict[str, Any]) -> tuple[str | None, set[str]]:
    """The input that holds positions, and those that are masks."""
    _, needed, _ = part_of(graph, node.after, {node.before, *taken}, sizes)
    if odd := sorted(n for n in needed if graph.kinds.get(n) not in TYPES):
        raise NotShown(f"it depends on the input {odd[0]!r}, which holds no integers")
    masks = {n for n in needed if "mask" in n.lower()}
    if len(needed - masks) > 1:
        raise NotShown(f"it depends on the inputs {', '.join(map(repr, sorted(needed)))}: which of them are positions?")
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


def conditions(graph: Graph, node: RotationNode, sizes: Sizes) -> list[str]:
    """What decides which branch of an If behind a rotation is taken, but for constants."""
    nodes, _, _ = part_of(graph, node.after, {node.before}, sizes)
    deciding = [graph.nodes[i].input[0] for i in nodes if graph.nodes[i].op_type == "If" and graph.nodes[i].input]
    return [name for name in dict.fromkeys(deciding) if name not in graph.tensors]


def lengths_of(kind: Kind, model: ModelRotary) -> tuple[int, ...]:
    """Lengths of sequences that a kind is for: the longest, and the shortest where it rotates alike."""
    assert kind.exact is not None
    if kind.seq_len is None:
        return TOKENS, model.max_position or TOKENS
    trained = trained_length(kind.exact, model)
    other = trained + 1 if kind.seq_len > trained else min(TOKENS, trained)
    alike = torch.equal(kind.exact.inv_freq(kind.seq_len), kind.exact.inv_freq(other))
    return (kind.seq_len, other) if alike else (kind.seq_len,)


def taken(graph: Graph, names: list[str], tokens: int) -> dict[str, np.ndarray] | None:
    """These conditions for one sequence of so many tokens, from position 0; None where the graph has another length."""
    sizes = Sizes(graph, tokens)
    if sizes.tokens != tokens or tokens > LONGEST:
        return None
    return {name: run(graph, name, _inputs(graph, name, sizes), sizes) for name in names}


def _inputs(graph: Graph, wanted: str, sizes: Sizes) -> dict[str, Any]:
    _, needed, _ = part_of(graph, wanted, set(), sizes)
    inputs: dict[str, Any] = {}
    for name in needed:
        shape, kind = sizes.of(name), TYPES.get(graph.kinds.get(name, 0))
        if shape is None or kind is None or (np.prod(shape) < sizes.tokens and "pos" not in name.lower()):
            raise NotShown(f"which of its tables are taken depends on the input {name!r}")
        tokens = np.arange(shape[-1]) if shape and "mask" not in name.lower() else np.ones(shape[-1:])
        inputs[name] = np.broadcast_to(tokens, shape).astype(kind)
    return inputs
