"""One rotation of a graph against the spec of its layer: fed with golden inputs, compared with golden results."""

import dataclasses
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...models.configs import ModelRotary
from ...rotary.layout import Layout
from ..golden.check import findings_of
from ..golden.layer_kinds import Kind
from ..golden.report import TensorFinding
from ..golden.tensors import TABLE, WIDEST, tensors_of
from ..golden.vectors import Tolerance, Vectors
from .graph import Graph, library
from .inputs import TOKENS, RunInputs, conditions, inputs_of_runs, lengths_of, taken
from .rotations import RotationNode
from .run import NotShown, run
from .shapes import Shape, Sizes

END = re.compile(r"out of bounds for axis \d+ with size (\d+)")
ROUNDING = {10: 2.0**-11, 16: 2.0**-8}  # half a step of float16 and bfloat16, as TensorProto.DataType numbers them
NAME = "model.float32.k_out"


@dataclasses.dataclass(frozen=True)
class Judged:
    """``finding``: the error, if there is one; ``notes``: what is worth knowing; ``by_length``: whether its tables are
    those that the graph takes for sequences of the kind's length."""

    finding: TensorFinding | None
    notes: tuple[str, ...]
    by_length: bool = False


class Judge:
    """Judges rotations of one graph by the kinds of layers of one model. Equal results are diagnosed once."""

    def __init__(self, graph: Graph, model: ModelRotary) -> None:
        self.graph, self.model = graph, model
        self.done: dict[Any, list[TensorFinding]] = {}

    def judge(self, node: RotationNode, kind: Kind) -> Judged:
        """`NotShown` where the rotation cannot be run by itself."""
        assert kind.exact is not None
        if node.fault:
            raise NotShown(node.fault)
        if kind.exact.learned:
            raise NotShown("its frequencies are trained, and no config has them")
        names = conditions(self.graph, node, Sizes(self.graph, TOKENS))
        return self._by_length(node, kind, names) if names else self._with_its_tables(node, kind, {})

    def _by_length(self, node: RotationNode, kind: Kind, names: list[str]) -> Judged:
        """By the tables that the conditions ``names`` choose for sequences that the kind is for."""
        lengths = lengths_of(kind, self.model)
        ways = {length: taken(self.graph, names, length) for length in lengths}
        if None in ways.values():
            judged = self._with_its_tables(node, kind, {})
            text = f"an If chooses its tables by {names[0]!r}, and they were looked at for one length only"
            return dataclasses.replace(judged, notes=(*judged.notes, text))
        for length, way in ways.items():
            judged = self._with_its_tables(node, kind, way or {})
            if (wrong := judged.finding) is not None:
                reason = f"{wrong.reason}, in the tables that {length:,} tokens take"
                judged = dataclasses.replace(judged, finding=dataclasses.replace(wrong, reason=reason))
                break
        text = " and ".join(f"{length:,}" for length in dict.fromkeys(lengths))
        notes = (*judged.notes, f"an If chooses its tables by {names[0]!r}: looked at those of {text} tokens")
        return Judged(judged.finding, notes, by_length=True)

    def _with_its_tables(self, node: RotationNode, kind: Kind, way: dict[str, Any]) -> Judged:
        try:
            return self._judged(node, kind, None, way)
        except NotShown as error:
            if not (end := END.search(str(error))):
                raise
            rows = int(end[1])
            judged = self._judged(node, kind, rows, way)
            return dataclasses.replace(judged, notes=(*judged.notes, f"its tables end at position {rows - 1:,}"))

    def _judged(self, node: RotationNode, kind: Kind, rows: int | None, way: dict[str, Any]) -> Judged:
        runs = inputs_of_runs(self.graph, self.model, node, kind, rows, way)
        positions = torch.cat([one.positions for one in runs], dim=-1)
        golden = _vectors(kind, positions, self._half(node))
        heads = golden.tensors[f"{kind.name}.k_in"][0, 0].split([one.positions.shape[-1] for one in runs])
        y = torch.cat([self._rotated(node, kind, head, one) for head, one in zip(heads, runs, strict=True)])
        key = kind.name, tuple(positions.flatten().tolist()), y.numpy().tobytes(), self._half(node)
        if key not in self.done:
            other = {f"{kind.name}.{NAME}": y[None, None]}
            self.done[key] = findings_of(golden, kind, other)
        notes = [finding.reason for finding in self.done[key] if finding.verdict == "right"]
        if self._half(node):
            notes.append("its tables and products are in half precision")
        wrong = next((finding for finding in self.done[key] if finding.verdict == "wrong"), None)
        try:
            if wrong is None and not self._right_in_a_batch(node, kind, runs[0]):
                reason = "the second sequence of a batch is not rotated by its own positions"
                about = {"where": kind.name, "layers": kind.layers, "what": NAME}
                wrong = TensorFinding(**about, verdict="wrong", cause="positions", reason=reason)  # type: ignore[arg-type]
        except NotShown as error:
            notes.append(f"only one sequence at a time was looked at: {error}")
        return Judged(wrong, tuple(notes))

    def _right_in_a_batch(self, node: RotationNode, kind: Kind, one: RunInputs) -> bool:
        assert kind.exact is not None
        before, after, shape = self._in_channels(node, kind.exact.layout, one.sizes)
        axis = self._tokens_of(before, shape, one.sizes.tokens)
        return _rotates_second_sequence(self.graph, before, after, shape, axis, one)

    def _tokens_of(self, before: str, shape: Shape, tokens: int) -> int:
        names = self.graph.shapes.get(before, shape)
        return _token_axis(names if len(names) == len(shape) else shape, shape, tokens)

    def _half(self, node: RotationNode) -> float:
        return ROUNDING.get(self.graph.kinds.get(node.before, 1), 0.0)

    def _rotated(self, node: RotationNode, kind: Kind, head: Tensor, one: RunInputs) -> Tensor:
        """``[S, D]``: what comes of ``head`` ``[S, D]``, put into every one of the graph."""
        assert kind.exact is not None
        layout, graph, sizes, tokens = kind.exact.layout, self.graph, one.sizes, one.sizes.tokens
        row = torch.zeros(tokens, head.shape[-1])
        row[one.rows] = head
        before, after, shape = self._in_channels(node, layout, sizes)
        axis = self._tokens_of(before, shape, tokens)
        fed = row if _holds(shape, layout.head_dim) else layout.turned(row)
        heads = shape[-1] // fed.shape[-1]
        spread = [1] * len(shape)
        spread[axis], spread[-1] = tokens, shape[-1]
        kind_of = library().helper.tensor_dtype_to_np_dtype(graph.kinds.get(before, 1))
        x = np.broadcast_to(np.tile(fed.numpy(), heads).reshape(spread), shape).astype(kind_of)
        y = run(graph, after, {before: x, **one.inputs}, sizes).astype(np.float64)
        if y.shape != shape and not (len(shape) == 3 and y.shape[:2] == shape[:2] and y.size == x.size):
            raise NotShown(f"its result has the shape {list(y.shape)}, and what it rotates {list(shape)}")
        y = y.reshape(shape)
        lines: np.ndarray = np.moveaxis(y, axis, -2).reshape(-1, tokens, heads, fed.shape[-1]).swapaxes(1, 2)
        lines = lines.reshape(-1, tokens, fed.shape[-1])
        if not (lines == lines[:1]).all() and not np.isnan(lines).any():
            raise NotShown("its heads are not rotated alike")
        got = torch.from_numpy(lines[0].copy())[one.rows]
        return got if fed.shape == row.shape else layout.within(head.double(), got)

    def _in_channels(self, node: RotationNode, layout: Layout, sizes: Sizes) -> tuple[str, str, Shape]:
        """What is rotated, its result and its shape: from before its channels are cut into pairs to behind that."""
        graph, before, after = self.graph, node.before, node.after
        while not _fits(sizes.of(before), layout) and _op(graph, graph.makers.get(before)) == "Reshape":
            before = graph.nodes[graph.makers[before]].input[0]
        while before != node.before and not _fits(sizes.of(after), layout):
            users = graph.users.get(after, [])
            if len(users) != 1 or _op(graph, users[0]) != "Reshape":
                break
            after = graph.nodes[users[0]].output[0]
        shape = sizes.of(before)
        if shape is None or len(shape) < 3:
            raise NotShown(f"the shape of what it rotates, {before!r}, is not in the file")
        if not _fits(shape, layout):
            shape = sizes.of(node.before) or shape
            raise NotShown(f"its heads have {shape[-1]} channels, and those of the config {layout.head_dim}")
        return before, after, shape


def _op(graph: Graph, index: int | None) -> str:
    return "" if index is None else graph.nodes[index].op_type


def _holds(shape: Shape, channels: int) -> bool:
    """Whether the last axis is one head of so many channels, or, of three axes, several."""
    return shape[-1:] == (channels,) or (len(shape) == 3 and shape[-1] > 0 and shape[-1] % channels == 0)


def _fits(shape: Shape | None, layout: Layout) -> bool:
    return shape is not None and (_holds(shape, layout.head_dim) or _holds(shape, layout.rotary_dim))


def _token_axis(names: tuple[Any, ...], shape: Shape, tokens: int) -> int:
    axes = [a for a in range(len(shape) - 1) if shape[a] == tokens]
    free = [a for a in axes if isinstance(names[a], str)]
    if not axes:
        raise NotShown(f"what it rotates has the shape {list(shape)}, and none of its axes the {tokens} tokens")
    return next((a for a in (len(shape) - 2, 1, 0) if a in (free or axes)), axes[0])


def _vectors(kind: Kind, positions: Tensor, half: float) -> Vectors:
    """Golden vectors of one kind at these positions, k alone; with ``half`` a step wider, as half precision rounds."""
    goldens = {f"{kind.name}.{n}": g for n, g in tensors_of(kind, positions, ("k",), 0).items()}
    name = f"{kind.name}.{NAME}"
    if half:
        allowed = goldens[name].tolerance
        wider = Tolerance(WIDEST * (TABLE + half) + allowed.absolute, 2 * half, allowed.per_radian)
        goldens[name] = dataclasses.replace(goldens[name], tolerance=wider)
    about = {n: {"kind": kind.name, "tolerance": dataclasses.asdict(g.tolerance)} for n, g in goldens.items()}
    data = {"targets": ["k"], "softmax_factor": 1.0, "tensors": about}
    return Vectors({kind.name: kind}, {n: g.tensor for n, g in goldens.items()}, data)


def _rotates_second_sequence(graph: Graph, before: str, after: str, shape: Shape, axis: int, one: RunInputs) -> bool:
    """Whether the second of two sequences is rotated as it is alone: the same heads and positions, backwards.

    ``shape``: that of what is rotated, ``axis`` its tokens, when there is one sequence. True where the graph takes one
    sequence, or the same positions for all. `NotShown` where two of them do not run.
    """
    names = graph.shapes.get(one.name, ()) if one.name else ()
    if len(names) < 2 or not isinstance(names[-2], str):
        return True
    two = Sizes(graph, one.sizes.tokens, names[-2])
    double = two.of(before)
    apart = [] if double is None else [i for i, (a, b) in enumerate(zip(shape, double, strict=False)) if a != b]
    if double is None or len(double) != len(shape) or len(apart) != 1 or double[apart[0]] != 2 * shape[apart[0]]:
        raise NotShown("a batch of two has no shape of its own")
    x = np.random.default_rng(0).standard_normal(shape)
    x = x.astype(library().helper.tensor_dtype_to_np_dtype(graph.kinds.get(before, 1)))
    inputs = {name: _twice(graph, name, value, names[-2], one.name) for name, value in one.inputs.items()}
    alone = run(graph, after, {before: x, **one.inputs}, one.sizes)
    both = run(graph, after, {before: _with_reverse(x, axis, apart[0]), **inputs}, two)
    if alone.size != x.size or both.size != 2 * x.size:
        raise NotShown("a batch of two has a result of another size")
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
