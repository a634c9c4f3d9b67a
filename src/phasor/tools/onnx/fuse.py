"""Every rotation of an ONNX graph that one operator can say becomes that operator, and each is proved."""

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from ...eye.experiments import longest_in
from ...eye.stretch import CannotSay
from ...support.checks import one_of, whole
from ...support.findings import Finding
from ...support.json_files import read_json
from ...support.whole_files import PARTIAL, check_file_target, followed, write_whole
from ..fuse.report import ALREADY, FuseReport, why_none
from .check import TRIGONOMETRIC
from .graph import Graph
from .look import Turn
from .operators import NotShown
from .proof import proved_equal
from .read import File, bodies, inside, read_file
from .rewrite import Site, rewritten
from .rotations import Rotation, Rotations, rows_in, tables, tables_read
from .running import compared, files_beside


@dataclass(frozen=True)
class OnnxFuseReport(FuseReport):
    """``rows``: of the longest new table."""

    rows: int = 0

    def _tables(self) -> str:
        return f", tables of {self.rows:,} positions"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {**super().to_dict(), "rows": self.rows}


def fuse(
    file: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    length: int | None = None,
    data: Literal["copy", "link"] = "copy",
    run: bool | None = None,
) -> OnnxFuseReport:
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
    with torch.no_grad(), _data_beside(followed(out), source, data):
        report, model = _fused(source, Path(file), length, run)
    write_whole(out, model.SerializeToString())
    return report


def _fused(source: File, path: Path, length: int | None, run: bool | None) -> tuple[OnnxFuseReport, Any]:
    model = type(source.model)()
    model.CopyFrom(source.model)
    branches = [body for node in model.graph.node if node.op_type == "If" for body in bodies(node)]
    parts = [_branch(model, body, source.folder, path, length) for body in branches]
    parts.append(part := _Part(File(model, source.folder), path, length))
    findings = [finding for part in parts for finding in part.findings]
    rows = [len(site.cos) for part in parts for site in part.sites]
    if not rows:
        raise ValueError(
            f"{path} has no rotation to fuse: {why_none(findings, (*part.rotations.seen.unread, *part.repeated))}"
        )
    outputs = compared(source, part.model, part.rotations, min(rows), run)
    nodes = [sum(1 + len(list(inside(node))) for node in one.graph.node) for one in (source, part.model)]
    notes = dict.fromkeys(f"not run: {reason}" for part in parts for reason in part.rotations.seen.unread)
    forming = [node.name or node.output[0] for node in part.model.graph.node if node.op_type in TRIGONOMETRIC]
    notes |= dict.fromkeys(part.repeated)
    notes |= dict.fromkeys([f"cos and sin are still formed, by {', '.join(forming)}"] if forming else [])
    report = OnnxFuseReport(path.name, tuple(findings), len(rows), tuple(nodes), outputs, tuple(notes), max(rows))
    return report, part.model


def _branch(model: Any, body: Any, folder: Path, path: Path, length: int | None) -> "_Part":
    """What is fused of a branch of ``model``, in its place; it reads the inputs and constants of what it stands in."""
    alone = type(model)(ir_version=model.ir_version, opset_import=model.opset_import, graph=body)
    alone.graph.input.extend(model.graph.input)
    alone.graph.initializer.extend(model.graph.initializer)
    part, known = _Part(File(alone, folder), path, length), {tensor.name for tensor in alone.graph.initializer}
    model.graph.initializer.extend(t for t in part.model.graph.initializer if t.name not in known)
    del body.node[:]
    body.node.extend(part.model.graph.node)
    model.opset_import.extend(part.model.opset_import[len(model.opset_import) :])
    return part


class _Part:
    """A graph and what is fused of it: ``sites``, and the ``model`` with their operators; ``findings``: of all."""

    def __init__(self, part: File, path: Path, length: int | None) -> None:
        self.path, self.length = path, length
        try:
            self.rotations = Rotations(part)
        except NotShown as error:
            raise ValueError(f"{path} cannot be run: {error}") from None
        self.findings, self.sites, self._tables = list[Finding](), list[Site](), dict[Any, tuple[Tensor, Tensor]]()
        for (_, side), turn in self.rotations.seen.turns.items():
            nodes = self.rotations.seen.nodes(turn.operations)
            if not any(path.count(".") > 1 for path in nodes):  # a branch is looked at by itself
                self._add(side, turn, any(node.rotates for node in nodes.values()))
        self.model = rewritten(part.model, self.sites, part.opset)
        if self.sites and not self._proved(Graph(self.model.graph, File(self.model, part.folder))):
            self.model = rewritten(part.model, self.sites, part.opset)
        repeating = [node for node in part.graph.node if node.op_type in ("Loop", "Scan")]
        self.repeated = [f"what {node.op_type} {node.name!r} repeats is not looked at" for node in repeating]

    def _add(self, side: str, turn: Turn, already: bool) -> None:
        name, what = self.rotations.seen.name(turn)
        about: dict[str, Any] = {"where": name, "what": f"{side}, {what}"}
        missing = "" if turn.side.seen.fixed else turn.side.seen.missing
        if already:
            self.findings.append(Finding(**about, verdict="right", reason=ALREADY))
        elif turn.turns:
            try:
                of = self.rotations.of(turn)
                if of.target not in {site.rotation.target for site in self.sites}:  # one key of several attentions
                    self.sites.append(Site(of, *self._tables_of(of)))
            except CannotSay as reason:
                missing = str(reason)
        if missing and not already:
            self.findings.append(Finding(**about, verdict="not shown", reason=missing))

    def _tables_of(self, of: Rotation) -> tuple[Tensor, Tensor]:
        graph, batch = self.rotations.graph, self.rotations.batch
        rows = self._rows(of, rows_in(graph, of, batch))
        key = rows, of.inv_freq, of.factor, of.dtype, of.target if of.inv_freq is None else ""
        if key not in self._tables:
            self._tables[key] = tables(graph, of, rows, batch)
        return self._tables[key]

    def _rows(self, of: Rotation, own: int | None) -> int:
        """How many positions its tables need: as many as the graph has, or was said to have."""
        if not of.positions and not self.rotations.sizes.free:
            return of.shape[of.tokens]
        beside, declared = self.path.resolve().parent / "config.json", self.length
        if declared is None and own is None and beside.is_file():
            declared = longest_in(read_json(beside))
        if declared is None and own is None:
            raise ValueError(
                f"{self.path} declares no length that its tables must reach, and there is no config.json beside it "
                "that does; give length (--length), the longest sequence that it will be run on"
            )
        return min(n for n in (declared, own) if n is not None)

    def _proved(self, after: Graph) -> bool:
        """Whether all sites are; those that are not are left."""
        proved, known = list[Site](), set[Any]()
        for site in self.sites:
            about: dict[str, Any] = {"what": str(site.rotation)}
            graph = self.rotations.graph
            read = tables_read(graph, site.rotation)
            table = id(site.cos), frozenset(graph.computed_as.get(name, name) for name in read)
            try:
                difference = proved_equal(graph, after, site, self.rotations.batch, table not in known)
            except CannotSay as reason:
                self.findings.append(Finding(**about, verdict="not shown", reason=f"not proved: {reason}"))
                continue
            self.findings.append(Finding(**about, verdict="right", difference=difference))
            known.add(table)
            proved.append(site)
        everything, self.sites = len(proved) == len(self.sites), proved
        return everything


@contextmanager
def _data_beside(out: Path, source: File, data: str) -> Iterator[None]:
    """The files of weights beside ``out``, where that is in another folder; they are copied during what is done here,
    and are there after it, if it raises nothing."""
    places = {file: out.parent / file.relative_to(source.folder) for file in sorted(files_beside(source))}
    places = {file: place for file, place in places.items() if not (place.exists() and place.samefile(file))}
    if there := next((place for place in places.values() if place.exists()), None):
        raise ValueError(f"{there} stands where the weights of the model must lie; name another folder for out")
    partials = {file: place.with_name(f"{place.name}.{os.getpid()}{PARTIAL}") for file, place in places.items()}
    with ExitStack() as last:
        for partial in partials.values():
            last.callback(partial.unlink, missing_ok=True)
        pool = last.enter_context(ThreadPoolExecutor(1))
        copies = [pool.submit(_placed, file, partial, data) for file, partial in partials.items()]
        yield
        for copy, (file, partial) in zip(copies, partials.items(), strict=True):
            place = places[file]
            try:
                copy.result()
                os.replace(partial, place)
            except OSError as error:
                raise ValueError(f"{place} cannot be made of {file}: {error.strerror or error}") from None


def _placed(file: Path, partial: Path, data: str) -> None:
    partial.parent.mkdir(parents=True, exist_ok=True)
    os.link(file, partial) if data == "link" else shutil.copyfile(file, partial)
