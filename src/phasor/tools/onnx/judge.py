"""One rotation of a graph against the spec of its layer: fed with golden inputs, compared with golden results."""

import dataclasses
import re
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...models.configs import ModelRotary
from ...rotary.layout import Layout
from ..golden.judging import Finding
from ..golden.judging.check import findings_of
from ..golden.kinds import Kind
from ..golden.vectors import Tolerance, Vectors
from ..golden.writing.tensors import TABLE, WIDEST, tensors_of
from .batch import own_positions
from .branches import TOKENS, conditions, lengths_of, taken
from .find import Place
from .graph import Graph
from .library import library
from .requested import Asked, asked
from .run import Unread, run
from .sizes import Shape, Sizes

END = re.compile(r"out of bounds for axis \d+ with size (\d+)")
ROUNDING = {10: 2.0**-11, 16: 2.0**-8}  # half a step of float16 and bfloat16, as TensorProto.DataType numbers them
NAME = "model.float32.k_out"


@dataclasses.dataclass(frozen=True)
class Judged:
    """``finding``: the error, if there is one; ``notes``: what is worth knowing; ``by_length``: whether its tables are
    those that the graph takes for sequences of the kind's length."""

    finding: Finding | None
    notes: tuple[str, ...]
    by_length: bool = False


class Judge:
    """Judges places of one graph by the kinds of layers of one model. Equal results are diagnosed once."""

    def __init__(self, graph: Graph, model: ModelRotary) -> None:
        self.graph, self.model = graph, model
        self.done: dict[Any, list[Finding]] = {}

    def judge(self, place: Place, kind: Kind) -> Judged:
        """`Unread` where the place cannot be run by itself."""
        assert kind.exact is not None
        if place.fault:
            raise Unread(place.fault)
        if kind.exact.learned:
            raise Unread("its frequencies are trained, and no config has them")
        names = conditions(self.graph, place, Sizes(self.graph, TOKENS))
        return self._by_length(place, kind, names) if names else self._with_its_tables(place, kind, {})

    def _by_length(self, place: Place, kind: Kind, names: list[str]) -> Judged:
        """By the tables that the conditions ``names`` choose for sequences that the kind is for."""
        lengths = lengths_of(kind, self.model)
        ways = {length: taken(self.graph, names, length) for length in lengths}
        if None in ways.values():
            judged = self._with_its_tables(place, kind, {})
            told = f"an If chooses its tables by {names[0]!r}, and they were looked at for one length only"
            return dataclasses.replace(judged, notes=(*judged.notes, told))
        for length, way in ways.items():
            judged = self._with_its_tables(place, kind, way or {})
            if judged.finding is not None:
                says = f"{judged.finding.says}, in the tables that {length:,} tokens take"
                judged = dataclasses.replace(judged, finding=dataclasses.replace(judged.finding, says=says))
                break
        told = " and ".join(f"{length:,}" for length in dict.fromkeys(lengths))
        notes = (*judged.notes, f"an If chooses its tables by {names[0]!r}: looked at those of {told} tokens")
        return Judged(judged.finding, notes, by_length=True)

    def _with_its_tables(self, place: Place, kind: Kind, way: dict[str, Any]) -> Judged:
        try:
            return self._judged(place, kind, None, way)
        except Unread as error:
            if not (found := END.search(str(error))):
                raise
            rows = int(found[1])
            judged = self._judged(place, kind, rows, way)
            return dataclasses.replace(judged, notes=(*judged.notes, f"its tables end at position {rows - 1:,}"))

    def _judged(self, place: Place, kind: Kind, rows: int | None, way: dict[str, Any]) -> Judged:
        runs = asked(self.graph, self.model, place, kind, rows, way)
        positions = torch.cat([one.positions for one in runs], dim=-1)
        golden = _vectors(kind, positions, self._half(place))
        heads = golden.tensors[f"{kind.name}.k_in"][0, 0].split([one.positions.shape[-1] for one in runs])
        y = torch.cat([self._rotateed(place, kind, head, one) for head, one in zip(heads, runs, strict=True)])
        key = kind.name, tuple(positions.flatten().tolist()), y.numpy().tobytes(), self._half(place)
        if key not in self.done:
            other = {f"{kind.name}.{NAME}": y[None, None]}
            self.done[key] = findings_of(golden, kind, other)
        found = self.done[key]
        notes = [f.says for f in found if not f.error]
        if self._half(place):
            notes.append("its tables and products are in half precision")
        error = next((f for f in found if f.error), None)
        try:
            if error is None and not self._in_pairs(place, kind, runs[0]):
                says = "the second sequence of a batch is not turned by its own positions"
                error = Finding(kind=kind.name, layers=kind.layers, tensor=NAME, cause="positions", says=says)
        except Unread as reason:
            notes.append(f"only one sequence at a time was looked at: {reason}")
        return Judged(error, tuple(notes))

    def _in_pairs(self, place: Place, kind: Kind, one: Asked) -> bool:
        assert kind.exact is not None
        before, after, shape = self._in_channels(place, kind.exact.layout, one.sizes)
        axis = self._tokens_of(before, shape, one.sizes.tokens)
        return own_positions(self.graph, before, after, shape, axis, one)

    def _tokens_of(self, before: str, shape: Shape, tokens: int) -> int:
        names = self.graph.shapes.get(before, shape)
        return _token_axis(names if len(names) == len(shape) else shape, shape, tokens)

    def _half(self, place: Place) -> float:
        return ROUNDING.get(self.graph.kinds.get(place.before, 1), 0.0)

    def _rotateed(self, place: Place, kind: Kind, head: Tensor, given: Asked) -> Tensor:
        """``[S, D]``: what comes of ``head`` ``[S, D]``, put into every one of the graph."""
        assert kind.exact is not None
        layout, graph, sizes, tokens = kind.exact.layout, self.graph, given.sizes, given.sizes.tokens
        row = torch.zeros(tokens, head.shape[-1])
        row[given.rows] = head
        before, after, shape = self._in_channels(place, layout, sizes)
        axis = self._tokens_of(before, shape, tokens)
        fed = row if _holds(shape, layout.head_dim) else layout.turned(row)
        heads = shape[-1] // fed.shape[-1]
        spread = [1] * len(shape)
        spread[axis], spread[-1] = tokens, shape[-1]
        kind_of = library().helper.tensor_dtype_to_np_dtype(graph.kinds.get(before, 1))
        x = np.broadcast_to(np.tile(fed.numpy(), heads).reshape(spread), shape).astype(kind_of)
        y = run(graph, after, {before: x, **given.inputs}, sizes).astype(np.float64)
        if y.shape != shape and not (len(shape) == 3 and y.shape[:2] == shape[:2] and y.size == x.size):
            raise Unread(f"its result has the shape {list(y.shape)}, and what it turns {list(shape)}")
        y = y.reshape(shape)
        lines: np.ndarray = np.moveaxis(y, axis, -2).reshape(-1, tokens, heads, fed.shape[-1]).swapaxes(1, 2)
        lines = lines.reshape(-1, tokens, fed.shape[-1])
        if not (lines == lines[:1]).all() and not np.isnan(lines).any():
            raise Unread("its heads are not turned alike")
        got = torch.from_numpy(lines[0].copy())[given.rows]
        return got if fed.shape == row.shape else layout.within(head.double(), got)

    def _in_channels(self, place: Place, layout: Layout, sizes: Sizes) -> tuple[str, str, Shape]:
        """What is turned, its result and its shape: from before its channels are cut into pairs to behind that."""
        graph, before, after = self.graph, place.before, place.after
        while not _fits(sizes.of(before), layout) and _op(graph, graph.makers.get(before)) == "Reshape":
            before = graph.nodes[graph.makers[before]].input[0]
        while before != place.before and not _fits(sizes.of(after), layout):
            users = graph.users.get(after, [])
            if len(users) != 1 or _op(graph, users[0]) != "Reshape":
                break
            after = graph.nodes[users[0]].output[0]
        shape = sizes.of(before)
        if shape is None or len(shape) < 3:
            raise Unread(f"the shape of what it turns, {before!r}, is not in the file")
        if not _fits(shape, layout):
            shape = sizes.of(place.before) or shape
            raise Unread(f"its heads have {shape[-1]} channels, and those of the config {layout.head_dim}")
        return before, after, shape


def _op(graph: Graph, index: int | None) -> str:
    return "" if index is None else graph.nodes[index].op_type


def _holds(shape: Shape, channels: int) -> bool:
    """Whether the last axis is one head of so many channels, or, of three axes, several."""
    return shape[-1:] == (channels,) or (len(shape) == 3 and shape[-1] > 0 and shape[-1] % channels == 0)


def _fits(shape: Shape | None, layout: Layout) -> bool:
    return shape is not None and (_holds(shape, layout.head_dim) or _holds(shape, layout.rotary_dim))


def _token_axis(names: tuple[Any, ...], shape: Shape, tokens: int) -> int:
    found = [a for a in range(len(shape) - 1) if shape[a] == tokens]
    free = [a for a in found if isinstance(names[a], str)]
    if not found:
        raise Unread(f"what it turns has the shape {list(shape)}, and none of its axes the {tokens} tokens")
    return next((a for a in (len(shape) - 2, 1, 0) if a in (free or found)), found[0])


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
