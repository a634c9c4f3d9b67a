"""One rotation of a graph against the spec of its layer: golden heads, turned as it was seen to turn, are compared."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...eye.layout import placed
from ...eye.operator import Operator
from ...models.configs import ModelRotary
from ...rotary.apply import apply_rotary
from ...rotary.axes import InterleavedSections, Sections
from ...rotary.layout import Layout
from ...rotary.rotation import Rotation
from ...rotary.temperature import LearnedLog, Temperature
from ..golden.check import findings_of
from ..golden.layer_kinds import Kind, positions_of, trained_length
from ..golden.report import TensorFinding
from ..golden.tensors import TABLE, WIDEST, tensors_of
from ..golden.vectors import Tolerance, Vectors
from .graph import Graph, Unread
from .inputs import Sizes, inputs, numbers_of, spread
from .look import Look, Turn, first_look, look
from .operators import NotShown, TableEnds

Key = tuple[str, str]
PROBE, TOKENS = 8, 64  # tokens of the first run, and of a short sequence
COUNTED = 60  # tokens where the graph counts positions itself: 128 heads of 128 channels can be looked at
TAKING = ("Gather", "Slice")  # what takes rows of a table
LONGEST, MOST = 2**24, 500  # tokens and nodes from which it is computed which tables are taken
ROUNDING = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}  # half a step
EVEN = 1e-4  # between heads, and between sequences: what a sum of float32 angles leaves open
IN_A_BRANCH = "it stands in a branch"
NAME = "model.float32.k_out"


@dataclasses.dataclass(frozen=True)
class Judged:
    """``finding``: the error, if there is one; ``notes``: what is worth knowing; ``by_length``: whether its tables are
    those that the graph takes for sequences of the kind's length."""

    finding: TensorFinding | None
    notes: tuple[str, ...]
    by_length: bool = False


class Judge:
    """Judges rotations of one graph by the kinds of layers of one model. ``first``: the run that showed them."""

    def __init__(self, graph: Graph, model: ModelRotary) -> None:
        self.graph, self.model = graph, model
        self.head_dim = next(spec.head_dim for spec in model.layers if spec is not None)
        self.first, _, self.batch = first_look(graph, PROBE, self.head_dim)
        self._looks: dict[Any, Look] = {}
        self._done: dict[Any, list[TensorFinding]] = {}

    def judge(self, key: Key, kind: Kind) -> Judged:
        """`NotShown` where the rotation cannot be run by itself."""
        assert kind.exact is not None
        if kind.exact.learned:
            raise NotShown("its frequencies are trained, and no config has them")
        turn = self.first.turns[key]
        if turn.side.seen.missing and not turn.turns:
            raise NotShown(turn.side.seen.missing + self.first.among(turn))
        if any(path.count(".") > 1 for path in self.first.nodes(turn.operations)):
            raise NotShown(IN_A_BRANCH)
        behind = self.first.nodes(self.first.behind(turn))
        deciding: list[Any] = [self.graph.nodes[int(path.split(".")[1])] for path in behind if path.count(".") > 1]
        names = [name for name in dict.fromkeys(n.inputs[0] for n in deciding) if self.graph.constant(name) is None]
        return self._by_length(key, kind, names) if names else self._with_its_tables(key, kind, {})

    def _by_length(self, key: Key, kind: Kind, names: list[str]) -> Judged:
        """By the tables that the conditions ``names`` choose for sequences that the kind is for."""
        lengths = lengths_of(kind, self.model)
        ways = {length: self._taken(names, length) for length in lengths}
        if None in ways.values():
            judged = self._with_its_tables(key, kind, {}, 0)
            text = f"an If chooses its tables by {names[0]!r}, and they were looked at for one length only"
            return dataclasses.replace(judged, notes=(*judged.notes, text))
        for length, way in ways.items():
            judged = self._with_its_tables(key, kind, way or {}, length)
            if (wrong := judged.finding) is not None:
                reason = f"{wrong.reason}, in the tables that {length:,} tokens take"
                judged = dataclasses.replace(judged, finding=dataclasses.replace(wrong, reason=reason))
                break
        text = " and ".join(f"{length:,}" for length in dict.fromkeys(lengths))
        notes = (*judged.notes, f"an If chooses its tables by {names[0]!r}: looked at those of {text} tokens")
        return Judged(judged.finding, notes, by_length=True)

    def _taken(self, names: list[str], tokens: int) -> dict[str, Any] | None:
        """These conditions for one sequence of so many tokens, from position 0; None where that was not computed."""
        sizes = Sizes(self.graph, tokens, 1)
        if sizes.tokens != tokens or tokens > LONGEST or len(self.graph.needed(names, {})) > MOST:
            return None
        values: dict[str, Any] = inputs(self.graph, sizes, {}, count=True)
        self.graph(values, names, sizes)
        if any(isinstance(values[name], Unread) for name in names):
            return None
        return {name: values[name] for name in names}

    def _with_its_tables(self, key: Key, kind: Kind, way: Mapping[str, Any], length: int = LONGEST) -> Judged:
        """``length``: the longest sequence that takes these tables."""
        rows: int | None = None
        while True:
            try:
                judged = self._judged(key, kind, rows, way)
                rows = rows or self._rows(key, kind)
                return judged if rows is None else _ending(judged, kind, self.model, rows, length)
            except TableEnds as end:
                if rows is not None and end.rows >= rows:
                    raise
                rows = end.rows

    def _rows(self, key: Key, kind: Kind) -> int | None:
        """Rows of the shortest constant that its tables are taken from: seen without a run to its end, which a graph
        that counts its positions itself would need."""
        assert kind.exact is not None
        turn, pairs = self.first.turns[key], kind.exact.layout.pairs
        nodes = self.first.nodes((*self.first.behind(turn), *turn.operations)).values()
        taken = [name for node in nodes if node.op in TAKING or node.rotates for name in node.inputs]
        sizes = [[n for n in self.graph.sizes(name) if n > 1] for name in taken]
        return min((one[0] for one in sizes if len(one) == 2 and one[1] in (pairs, 2 * pairs)), default=None)

    def _judged(self, key: Key, kind: Kind, rows: int | None, way: Mapping[str, Any]) -> Judged:
        assert kind.exact is not None
        value = self._positions(key)
        runs = self._runs(value, kind, rows, way)
        turns = [_same(one, key) for _, one in runs]
        positions, half = torch.cat([at for at, _ in runs], dim=-1), max(map(_rounding, turns))
        golden = _vectors(kind, positions, half)
        heads = golden.tensors[f"{kind.name}.k_in"][0, 0].split([at.shape[-1] for at, _ in runs])
        y = torch.cat([_rotated(turn, kind.exact.layout, x) for x, turn in zip(heads, turns, strict=True)])
        if kind.temperature is not None and key[1] == "q":
            y /= _temperature(kind.temperature, positions)[:, None]
        known = kind.name, tuple(positions.flatten().tolist()), y.numpy().tobytes(), half
        if known not in self._done:
            self._done[known] = findings_of(golden, kind, {f"{kind.name}.{NAME}": y[None, None]})
        notes = [finding.reason for finding in self._done[known] if finding.verdict == "right"]
        notes += ["its tables and products are in half precision"] if half else []
        notes += ["only one sequence at a time was looked at"] if self.batch == 1 else []
        wrong = next((finding for finding in self._done[known] if finding.verdict == "wrong"), None)
        if wrong is None and not all(map(_heads_alike, turns)):
            raise NotShown("its heads are not rotated alike")
        if wrong is None and self.batch == 2 and not _by_own_positions(self.first.turns[key], value):
            reason = "the second sequence of a batch is not rotated by its own positions"
            about = {"where": kind.name, "layers": kind.layers, "what": NAME}
            wrong = TensorFinding(**about, verdict="wrong", cause="positions", reason=reason)  # type: ignore[arg-type]
        return Judged(wrong, tuple(notes))

    def _positions(self, key: Key) -> Any:
        """The input of the graph that says at which positions it rotates; None where the graph counts them itself."""
        leaves = self.first.leaves(self.first.turns[key])
        values = [v for v in self.graph.entries if v.name in leaves and "mask" not in v.name.lower()]
        if len(values) > 1:
            names = ", ".join(sorted(repr(value.name) for value in values))
            raise NotShown(f"it depends on the inputs {names}: which of them are positions?")
        return values[0] if values else None

    def _runs(self, value: Any, kind: Kind, rows: int | None, way: Mapping[str, Any]) -> list[tuple[Tensor, Look]]:
        """Positions ``[(A,) S]``, and what was seen at them; ``value``: the input that says them."""
        assert kind.exact is not None
        axes = kind.exact.axes.count
        sizes = Sizes(self.graph, min(rows or COUNTED, COUNTED), 1)
        shape = [] if value is None else sizes.of(value)
        by_axis = axes > 1 and len(shape) > 1 and shape[0] in (axes, axes + 1)
        if axes > 1 and not by_axis and not isinstance(kind.exact.axes, Sections | InterleavedSections):
            raise NotShown(f"its tokens have {axes} coordinates, which are formed inside")
        counted = value is None or shape[-1:] != [sizes.tokens]  # no input, or the first position alone
        lists = [list(range(sizes.tokens))] if counted else numbers_of(kind, self.model, sizes, rows)
        if not lists or max(map(max, lists)) == 0:
            raise NotShown("it can be run at position 0 only, where nothing rotates")
        runs = []
        for numbers in lists:
            sizes = Sizes(self.graph, len(numbers), 1)
            at = positions_of(kind, self.model, numbers) if by_axis else torch.tensor(numbers)
            given = torch.zeros(()) if counted else spread(at, [] if value is None else sizes.of(value))
            seen = self._look(sizes, {} if value is None else {value.name: given}, way)
            runs.append((at if by_axis or axes == 1 else at.expand(axes, -1), seen))
        return runs

    def _look(self, sizes: Sizes, at: Mapping[str, Tensor], way: Mapping[str, Any]) -> Look:
        numbers = tuple((name, tuple(x.flatten().tolist())) for name, x in at.items())
        key = sizes.tokens, numbers, tuple((name, bool(x)) for name, x in way.items())
        if key not in self._looks:
            self._looks[key] = look(self.graph, sizes, inputs(self.graph, sizes, at), way, self.head_dim)
        values = self._looks[key].values.values()
        if ends := [x.rows for x in values if isinstance(x, Unread) and x.rows]:
            raise TableEnds(min(ends))
        return self._looks[key]


def _ending(judged: Judged, kind: Kind, model: ModelRotary, rows: int, length: int) -> Judged:
    """Wrong where tables of so many rows are shorter than the sequences that take them and that the config declares."""
    notes = (*judged.notes, f"its tables end at position {rows - 1:,}")
    if model.max_position is None:
        notes = (*notes, "the config declares no length that they must reach")
    needed = min(model.max_position or 0, kind.seq_len or LONGEST, length)
    if judged.finding is not None or rows >= needed:
        return dataclasses.replace(judged, notes=notes)
    reason = f"its tables end at position {rows - 1:,}: positions {rows:,} to {needed - 1:,} cannot be rotated"
    reason = f"{reason}, and the config declares {model.max_position:,}; export it with tables of so many rows"
    about = {"where": kind.name, "layers": kind.layers, "what": NAME}
    wrong = TensorFinding(**about, verdict="wrong", cause="table_length", reason=reason)  # type: ignore[arg-type]
    return dataclasses.replace(judged, finding=wrong)


def lengths_of(kind: Kind, model: ModelRotary) -> tuple[int, ...]:
    """Lengths of sequences that a kind is for: the longest, and the shortest where it rotates alike."""
    assert kind.exact is not None
    if kind.seq_len is None:
        return TOKENS, model.max_position or TOKENS
    trained = trained_length(kind.exact, model)
    other = trained + 1 if kind.seq_len > trained else min(TOKENS, trained)
    alike = torch.equal(kind.exact.inv_freq(kind.seq_len), kind.exact.inv_freq(other))
    return (kind.seq_len, other) if alike else (kind.seq_len,)


def _same(seen: Look, key: Key) -> Turn:
    if key not in seen.turns:
        raise NotShown("at other positions it does not run")
    return seen.turns[key]


def _temperature(scheme: Temperature, positions: Tensor) -> Tensor:
    """What multiplies the queries beside the rotation, as the config says."""
    if isinstance(scheme, LearnedLog):
        raise NotShown("what multiplies its queries is trained, and no config has it")
    at: Tensor = scheme.at(positions if positions.ndim == 1 else positions[0])  # type: ignore[attr-defined]
    return at.double()


def _rounding(turn: Turn) -> float:
    """By how much tables are rounded that have the type of half precision."""
    tape = turn.side.tape
    tables = [tape.values[i] for o in turn.operations if o.name == "mul" for i in o.inputs if i not in tape.data]
    return max((ROUNDING.get(table.dtype, 0.0) for table in tables if table.numel() > 1), default=0.0)


def _rotated(turn: Turn, layout: Layout, head: Tensor) -> Tensor:
    """``[S, D]``: what comes of ``head`` ``[S, D]``, turned as the first head of the first sequence is seen to."""
    seen = turn.side.operator
    if seen is None or not seen.pairs:
        if turn.side.seen.missing:
            raise NotShown(turn.side.seen.missing)
        return head.double()
    if (place := placed(seen)) is None:
        raise NotShown(f"its pairs {seen.pairs[:3]}… lie in no layout that is known here")
    own = place.layout
    if own.head_dim != layout.head_dim:  # the channels that pass are apart in one of the two
        if own.rotary_dim != layout.rotary_dim or layout.rotary_dim not in (layout.head_dim, own.head_dim):
            raise NotShown(f"its heads have {own.head_dim} channels, and those of the config {layout.head_dim}")
        own = dataclasses.replace(own, head_dim=own.rotary_dim, trailing=False)
    x = head.double()
    fed = x if own.head_dim == layout.head_dim else layout.turned(x)
    got = apply_rotary(fed[None, None], _as_rotation(seen, own, place.pair_of))[0, 0]
    return got if fed is x else layout.within(x, got)


def _as_rotation(seen: Operator, layout: Layout, pair_of: tuple[int, ...]) -> Rotation:
    """Of the first head; pairs that were not seen to turn stay."""

    def table(x: Tensor, rest: float) -> Tensor:
        full = torch.full((x.shape[-1], layout.pairs), rest, dtype=torch.float64)
        full[:, list(pair_of)] = x[0].T / seen.factor
        return full

    second = None if seen.second is None else (table(seen.second[0], 1.0), table(seen.second[1], 0.0))
    return Rotation(cos=table(seen.cos, 1.0), sin=table(seen.sin, 0.0), layout=layout, second=second)


def _heads_alike(turn: Turn) -> bool:
    seen = turn.side.operator
    return seen is None or all(bool(((t - t[:1]).abs() <= EVEN).all()) for t in (seen.cos, seen.sin))


def _by_own_positions(turn: Turn, value: Any) -> bool:
    """Whether the second sequence of the first run, at positions 0, 1, …, turns by them, and not by 1, 0, …"""
    seen, dims = turn.side.operator, [] if value is None else value.type.tensor_type.shape.dim
    if seen is None or len(dims) < 2 or not dims[-2].dim_param or len(seen.cos) % 2 or seen.cos.shape[-1] < 2:
        return True
    one, two = torch.stack((seen.cos, seen.sin), 1).chunk(2)
    return bool((one[..., :2] - two[..., :2].flip(-1)).abs().max() <= EVEN)


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
