"""Every rotation of an ONNX graph that one operator can say becomes that operator, and each is proved."""

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from ...eye.experiments import longest_in
from ...eye.stretch import CannotSay
from ...support.checks import one_of, whole
from ...support.findings import Difference, Finding, Report
from ...support.json_files import read_json
from ...support.whole_files import check_file_target, followed, write_whole
from .graph import Graph, Unread
from .inputs import Sizes
from .operators import NotShown
from .read import File, bodies, inside, read_file, tensors_of
from .rewrite import Site, rewritten
from .rotations import AT_ONCE, PADDED, Rerun, Rotation, Rotations, every_position, rows_in, tables
from .running import DoesNotRun, apart, outputs_of

LARGEST_RUN = 2**30  # bytes of weights up to which a model is run as a whole
STEPS = 4  # of the number format, by which products of heads and tables may differ


@dataclass(frozen=True)
class FuseReport(Report[Finding]):
    """One finding for each rotation: right where an operator stands for it now, not shown where it was left.

    ``fused``: how many operators are new; ``nodes``: before and after; ``rows``: of the longest new table; ``outputs``:
    what was seen of the whole model's; ``unread``: what could not be run, and hides what follows up to a projection.
    """

    fused: int
    nodes: tuple[int, int]
    rows: int
    outputs: str
    unread: tuple[str, ...]
    unit: ClassVar[str] = "rotation"

    def __str__(self) -> str:
        largest = max((f.difference.size or 0.0 for f in self.findings if f.difference is not None), default=0.0)
        how = "equal to the bit" if largest == 0 else f"equal within its own rounding, {largest:.1g} at most"
        lines = [
            f"{self.subject}: {self.fused} of {len(self.findings)} rotations fused, each {how}",
            f"nodes {self.nodes[0]:,} -> {self.nodes[1]:,}, tables of {self.rows:,} positions; {self.outputs}",
        ]
        lines += [f"left: {f.place()}: {f.reason}" for f in self.findings if f.verdict != "right"]
        return "\n".join([*lines, *(f"not run: {reason}" for reason in self.unread[:3])])

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        more = {"fused": self.fused, "nodes": list(self.nodes), "rows": self.rows, "outputs": self.outputs}
        return {**super().to_dict(), **more, "unread": list(self.unread)}


def fuse(
    file: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    length: int | None = None,
    data: Literal["copy", "link"] = "copy",
    run: bool | None = None,
) -> FuseReport:
    """Write ``file`` to ``out`` with one ``RotaryEmbedding`` for each rotation, whatever nodes it was made of.

    A rotation is found by what it does, as `phasor.observe` finds it, so no way of writing it needs a pattern. The
    operator is that of ai.onnx from opset 23, and of com.microsoft below. Its tables are exact for ``length``
    positions (default: where the graph's own tables end, or what a config.json beside the file declares); where the
    graph holds tables, they are these. Its positions are those that the graph takes or forms.

    Each is run before and after, at all positions or many, with two sequences and padding, and stays as it was unless
    it is equal to the bit or within the rounding of the angles that the graph forms. ``run``: compare all outputs of
    the whole model in onnxruntime, too (default: where that is installed, and the weights have at most 1 GiB).

    Files of weights are not read. They stay where they are if ``out`` is in the same folder; in another one they are
    copied, or with ``data="link"`` hard links, which onnx itself refuses to load and engines take. Local functions are
    written out. Nothing is left of a file that could not be made.

    Raises ``ValueError`` for a file that cannot be read, in which nothing turns or nothing can be fused, and which says
    no length. Needs onnx.

    Example::

        print(phasor.onnx.fuse("model.onnx", "fused.onnx", length=131072))
    """
    if length is not None:
        whole("length", length, at_least=1)
    one_of("data", data, ("copy", "link"))
    out = Path(out)
    check_file_target("out", out, ordinary=True)
    source = read_file(file)
    with torch.no_grad():
        report, model = _fused(source, Path(file), length, run)
    _place_data(source, followed(out), data)
    write_whole(out, model.SerializeToString())
    return report


def _fused(source: File, path: Path, length: int | None, run: bool | None) -> tuple[FuseReport, Any]:
    model = type(source.model)()
    model.CopyFrom(source.model)
    founds: list[_Found] = []
    for body in _branches(model.graph):
        part = _alone(model, body)
        found, after = _of_part(File(part, source.folder), path, length)
        if found.sites:
            new = {t.name for t in after.graph.initializer} - {t.name for t in part.graph.initializer}
            model.graph.initializer.extend(t for t in after.graph.initializer if t.name in new)
            del body.node[:]
            body.node.extend(after.graph.node)
            model.MergeFrom(type(model)(opset_import=after.opset_import[len(model.opset_import) :]))
        founds.append(found)
    found, model = _of_part(File(model, source.folder), path, length)
    founds.append(found)
    sites, findings = [s for f in founds for s in f.sites], [x for f in founds for x in f.findings()]
    if not sites:
        raise ValueError(f"{path} has no rotation to fuse: {_why(findings, found.rotations)}")
    outputs = _compared(source, model, found.rotations, run)
    nodes = _count(source.graph), _count(model.graph)
    rows = max(len(site.cos) for site in sites)
    unread = tuple(dict.fromkeys(reason for f in founds for reason in f.rotations.unread))
    return FuseReport(path.name, tuple(findings), len(sites), nodes, rows, outputs, unread), model


def _of_part(part: File, path: Path, length: int | None) -> tuple["_Found", Any]:
    """What is fused of a graph, and the model with it."""
    try:
        found = _Found(Rotations(part), path, length)
    except NotShown as error:
        raise ValueError(f"{path} cannot be run: {error}") from None
    model = part.model
    while found.sites:
        model = rewritten(part.model, found.sites, part.opset)
        if not found.prove(Graph(model.graph, File(model, part.folder))):
            return found, model
    return found, part.model


def _branches(graph: Any) -> list[Any]:
    return [body for node in graph.node if node.op_type == "If" for body in bodies(node)]


def _alone(model: Any, body: Any) -> Any:
    """A branch as a model: it reads the inputs and constants of the graph that it stands in."""
    part = type(model)(ir_version=model.ir_version, opset_import=model.opset_import, graph=body)
    part.graph.input.extend(model.graph.input)
    part.graph.initializer.extend(model.graph.initializer)
    return part


def _count(graph: Any) -> int:
    return sum(1 + len(list(inside(node))) for node in graph.node)


class _Found:
    """What turns in a graph: ``sites`` that are fused, and why others are not."""

    def __init__(self, rotations: Rotations, path: Path, length: int | None) -> None:
        self.rotations, self.path, self.length = rotations, path, length
        self.sites: list[Site] = []
        self._left: list[Finding] = []
        self._differences: dict[str, Difference] = {}
        self._tables: dict[Any, tuple[Tensor, Tensor]] = {}
        seen = rotations.seen
        for (_, side), turn in seen.turns.items():
            name, what = seen.name(turn)
            about: dict[str, Any] = {"where": name, "what": f"{side}, {what}"}
            nodes = seen.nodes(turn.operations)
            if any(path.count(".") > 1 for path in nodes):  # it is looked at by itself
                continue
            if any(node.rotates for node in nodes.values()):
                self._left.append(Finding(**about, verdict="right", reason="an operator already"))
            elif turn.turns:
                self._add(turn, about)
            elif turn.side.seen.missing and not turn.side.seen.fixed:
                self._left.append(Finding(**about, verdict="not shown", reason=turn.side.seen.missing))

    def _add(self, turn: Any, about: dict[str, Any]) -> None:
        try:
            of = self.rotations.of(turn)
            if of.target not in {site.rotation.target for site in self.sites}:  # one key of several attentions
                self.sites.append(Site(of, *self._tables_of(of)))
        except CannotSay as reason:
            self._left.append(Finding(**about, verdict="not shown", reason=str(reason)))

    def _tables_of(self, of: Rotation) -> tuple[Tensor, Tensor]:
        graph, batch = self.rotations.graph, self.rotations.batch
        rows = self._rows(of, rows_in(graph, of, batch))
        key = rows, of.inv_freq, of.factor, of.dtype, of.target if of.inv_freq is None else ""
        if key not in self._tables:
            self._tables[key] = tables(graph, of, rows, batch)
        return self._tables[key]

    def _rows(self, of: Rotation, own: int | None) -> int:
        """How many positions its tables need: as many as the graph has, or was said to have."""
        if not of.positions and not self.rotations.free:
            return self.rotations.fixed
        beside = self.path.resolve().parent / "config.json"
        declared = self.length
        if declared is None and own is None and beside.is_file():
            declared = longest_in(read_json(beside))
        if declared is None and own is None:
            raise ValueError(
                f"{self.path} declares no length that its tables must reach, and there is no config.json beside it "
                "that does; give length (--length), the longest sequence that it will be run on"
            )
        return min(n for n in (declared, own) if n is not None)

    def prove(self, after: Graph) -> bool:
        """Whether some site was not proved, which then is left."""
        before, batch, count = self.rotations.graph, self.rotations.batch, len(self.sites)
        whole_tables = set[int]()
        for site in list(self.sites):
            of = site.rotation
            if of.target in self._differences:
                continue
            try:
                every = id(site.cos) not in whole_tables
                self._differences[of.target] = _proved(before, after, site, batch, every)
                whole_tables.add(id(site.cos))
            except CannotSay as reason:
                self.sites.remove(site)
                self._left.append(Finding(what=str(of), verdict="not shown", reason=f"not proved: {reason}"))
        return len(self.sites) < count

    def findings(self) -> list[Finding]:
        made = [
            Finding(what=str(s.rotation), verdict="right", difference=self._differences.get(s.rotation.target))
            for s in self.sites
        ]
        return made + self._left


def _proved(before: Graph, after: Graph, site: Site, batch: int, every: bool) -> Difference:
    """How far a rotation is from what it was, at ``every`` position or at many; raises `CannotSay` if too far."""
    of, made, largest = site.rotation, torch.Generator().manual_seed(0), 0.0
    runs: list[Rerun] = []
    for rows in _positions(before, of, len(site.cos), batch, every):
        runs = runs or [Rerun(graph, of, rows.shape[-1], batch) for graph in (before, after)]
        x = torch.randn(runs[0].shape, generator=made).to(of.dtype)
        was, now = (run(x, rows) for run in runs)
        for value in (was, now):
            if isinstance(value, Unread):
                raise CannotSay(value.reason)
        if was.shape != now.shape or was.dtype != now.dtype:
            raise CannotSay("another shape or type comes out")
        difference = (was.double() - now.double()).abs()
        if not bool((difference <= _allowed(of, x, rows[: runs[0].rows])).all()):
            raise CannotSay(f"its values differ by {float(difference.max()):.2g}")
        largest = max(largest, float(difference.max()))
    return Difference(size=largest)


def _positions(graph: Graph, of: Rotation, length: int, batch: int, every: bool) -> Iterator[Tensor]:
    """``[batch, tokens]``: near, far and between, the second sequence padded and backwards; then all, if wanted."""
    if of.positions:
        count = Sizes(graph, AT_ONCE, batch).tokens
        near = torch.arange(count // 3)
        between = torch.linspace(0, length - 1, count - 2 * len(near)).long()
        row = torch.cat((near, between, length - 1 - near)).clamp(0, length - 1)
        back = row.flip(0)
        back[:PADDED] = 0
        yield torch.stack((row, back))[:batch]
    if every or not of.positions:
        yield from every_position(graph, of, length, batch)


def _allowed(of: Rotation, x: Tensor, rows: Tensor) -> Tensor:
    """By how much each value may differ: by roundings of its angle, where the graph forms one, of tables, products."""
    angle, table, product = (torch.finfo(kind).eps for kind in (of.angles_in, of.tables_in, of.dtype))
    inv_freq = torch.tensor(of.inv_freq or (0.0,) * of.layout.pairs, dtype=torch.float64)
    shape = [1] * x.ndim
    shape[0], shape[of.tokens] = rows.shape
    angles = (rows[..., None] * inv_freq).abs().reshape(*shape[:-1], -1)
    members = of.layout.split(x.double().abs())
    allowed = of.factor * sum(members) * (STEPS * max(table, product) + angle * angles)
    return of.layout.within(torch.zeros_like(x, dtype=torch.float64), of.layout.join(allowed, allowed))


def _why(findings: Sequence[Finding], rotations: Rotations) -> str:
    """Why nothing is fused, in a clause."""
    if findings and all(finding.verdict == "right" for finding in findings):
        return f"its {len(findings)} rotations are operators already"
    if reasons := [finding.reason for finding in findings if finding.verdict != "right"]:
        return reasons[0]
    return rotations.unread[0] if rotations.unread else "nothing in it turns"


def _compared(source: File, model: Any, rotations: Rotations, run: bool | None) -> str:
    """What became of the outputs of the whole model; ``ValueError`` where they are others."""
    installed = find_spec("onnxruntime") is not None
    if run is None:
        size = sum(len(t.raw_data) for t in source.graph.initializer) + sum(f.stat().st_size for f in _files(source))
        if not installed or size > LARGEST_RUN:
            return "the whole model was not run" + f" ({size:,} bytes of weights)" * installed
    if not run and run is not None:
        return "the whole model was not run"
    if not installed:
        raise ValueError("run needs onnxruntime; install it with: pip install onnxruntime, or leave run out")
    try:
        before = outputs_of(source.model, source.folder, rotations.graph, rotations.batch)
    except DoesNotRun as error:
        return f"onnxruntime does not run the model as it was ({error})"
    try:
        after = outputs_of(model, source.folder, rotations.graph, rotations.batch)
    except DoesNotRun as error:
        raise ValueError(f"onnxruntime runs the model as it was, and not with the operator: {error}") from None
    away = apart(before, after)
    if away == float("inf"):
        raise ValueError("the outputs of the whole model change by more than rounding, so nothing was written")
    return "all outputs equal to the bit" if away == 0 else f"all outputs equal within {away:.1g} of the largest value"


def _files(source: File) -> set[Path]:
    """The files beside it that hold its weights."""
    tensors = (t for t in tensors_of(source.model) if len(t.external_data))
    places = {entry.value for t in tensors for entry in t.external_data if entry.key == "location"}
    return {source.folder / place for place in places}


def _place_data(source: File, out: Path, data: str) -> None:
    """The files of weights beside ``out``, where that is in another folder."""
    for file in sorted(_files(source)):
        target = out.parent / file.relative_to(source.folder)
        if target.exists() and target.samefile(file):
            continue
        if target.exists():
            raise ValueError(f"{target} stands where the weights of the model must lie; name another folder for out")
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(file, target) if data == "link" else shutil.copyfile(file, target)
        except OSError as error:
            target.unlink(missing_ok=True)
            raise ValueError(f"{target} cannot be made of {file} ({error.strerror}); copy it (data='copy')") from None
