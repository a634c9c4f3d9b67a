"""An ONNX file against a model's config: every rotation in it, node by node."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ...models.configs import ModelRotary
from ...models.rotary_of import rotary_of
from ...support.findings import Finding, Report, Verdict
from ..golden.layer_kinds import Kind, kinds_of
from .graph import Graph, Node, Unread
from .judge import IN_A_BRANCH, Judge, Judged, Key
from .look import Look, Turn
from .operators import NotShown
from .read import read_file

TRIGONOMETRIC = ("Cos", "Sin")


@dataclass(frozen=True, kw_only=True)
class Site(Finding):
    """One rotation of the graph: ``where`` is the node it begins with, ``what`` the nodes it is made of.

    ``layer`` is None where it cannot be told; ``cause`` a word as in `phasor.golden.GoldenReport`; ``notes`` what is
    worth knowing and no error.
    """

    layer: int | None
    notes: tuple[str, ...] = ()

    def place(self) -> str:
        """Layer, node, and what it is made of."""
        return f"layer {self.layer}, {super().place()}" if self.layer is not None else super().place()

    def __str__(self) -> str:
        return "\n  ".join((super().__str__(), *self.notes))


@dataclass(frozen=True)
class OnnxReport(Report[Site]):
    """The rotations in the order of the graph; ``expected``: how many the config asks for; ``stray``: nodes that form
    cos or sin and belong to none of them; ``unread``: what in the graph could not be run."""

    expected: int
    stray: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    unit: ClassVar[str] = "rotation"

    @property
    def verdict(self) -> Verdict:
        """Right only if each rotation that the config asks for was found and is right, and nothing else rotates."""
        if self.wrong:
            return "wrong"
        right = all(site.verdict == "right" for site in self.findings)
        return "right" if right and len(self.findings) == self.expected and not self.stray else "not shown"

    @property
    def exit_code(self) -> int:
        """0 if the file is shown to be right, else 1."""
        return int(self.verdict != "right")

    def __str__(self) -> str:
        lines = [super().__str__()]
        if len(self.findings) != self.expected:
            lines.append(f"the config has {self.expected} rotations, and {len(self.findings)} were found in the graph")
        if self.stray:
            some = ", ".join(self.stray[:3]) + (", …" if len(self.stray) > 3 else "")
            lines.append(f"{len(self.stray)} nodes that form cos or sin belong to no rotation that was found: {some}")
        if self.verdict == "not shown":
            lines += [f"not run: {reason}" for reason in self.unread[:3]]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data."""
        return {
            **super().to_dict(),
            "equal": self.verdict == "right",
            "expected": self.expected,
            "stray": list(self.stray),
            "unread": list(self.unread),
        }


def check(
    file: str | os.PathLike[str],
    config: str | os.PathLike[str] | dict[str, Any] | ModelRotary | Any,
    *,
    part: str | None = None,
) -> OnnxReport:
    """Whether every rotation in an ONNX file is the one that a config asks for.

    ``config`` is what `phasor.read_config` takes, or its result; or the torch model that was exported, or an
    `Observation` of it; ``part`` as there. The nodes are run as operations of torch, and what turns q and k before
    each attention is seen as `phasor.observe` sees it, so that no way of writing a rotation needs a pattern; in a graph
    without an attention, what leaves it is looked at. It is run at positions that are near, trained and far, and what
    turns there is compared with the spec of its layer; where it differs, the known mistake that gives the same is
    named. Weights that q, k and v are projected by are not read.

    What cannot be run is not shown, and makes the file not right. Layers are told by the order of the graph: each has
    one rotation for q and one for k. Raises ``ValueError`` for a file that is no ONNX file, that is damaged, or whose
    external data is absent or outside of its folder, and for a config that cannot be read. Needs onnx.

    Example::

        print(phasor.onnx.check("model.onnx", "config.json"))
    """
    model = rotary_of(config, part)
    rotating = [i for i, spec in enumerate(model.layers) if spec is not None]
    if not rotating:
        raise ValueError(f"config must have a layer that rotates, got {model.model_type} with none")
    source = read_file(file)
    try:
        judge = Judge(Graph(source.graph, source), model)
    except NotShown as error:
        raise ValueError(f"{os.fspath(file)} cannot be run: {error}") from None
    first, kinds = judge.first, [kind for kind in kinds_of(model) if kind.spec is not None]
    turns = {key: turn for key, turn in first.turns.items() if turn.turns or not turn.side.seen.fixed}
    nodes = {path: node for path, node in judge.graph.named_modules() if isinstance(node, Node)}
    found = _found(first, turns, nodes)
    expected = [i for i in rotating for _ in model.targets]
    layers = expected if len(found) == len(expected) else [None] * len(found)
    sites = [_site(judge, *one, layer, kinds) for one, layer in zip(found, layers, strict=True)]
    forming = {path for turn in turns.values() for path in first.nodes(first.behind(turn))}
    stray = [n.name for path, n in nodes.items() if n.op in TRIGONOMETRIC and path not in forming and _on_top(path)]
    return OnnxReport(Path(file).name, tuple(sites), len(expected), tuple(stray), first.unread)


def _found(look: Look, turns: Mapping[Key, Turn], nodes: Mapping[str, Node]) -> list[tuple[str, str, Key | str]]:
    """Name, what it is, and what was seen or why nothing was: of all that turn, and of the other operators that
    rotate, in the order of the graph; of an attention q is first."""
    by_name = {node.name: i for i, node in enumerate(nodes.values())}
    by_path = {path: i for i, path in enumerate(nodes)}
    found: list[tuple[int, tuple[str, str, Key | str]]] = []
    for key, turn in turns.items():
        name, what = look.name(turn)
        found.append((by_path.get(key[0], by_name.get(name, -1)), (name, what, key)))
    used = {path for turn in turns.values() for path in look.nodes(turn.operations)}
    for path, node in nodes.items():
        if node.rotates and path not in used:
            value = look.values.get(node.outputs[0])
            reason = value.reason if isinstance(value, Unread) else "nothing that was found goes through it"
            found.append((by_path[path], (node.name, str(node), reason if _on_top(path) else IN_A_BRANCH)))
    return [one for _, one in sorted(found, key=lambda pair: pair[0])]


def _on_top(path: str) -> bool:
    """Whether a node stands in no branch."""
    return path.count(".") == 1


def _site(judge: Judge, where: str, what: str, key: Key | str, layer: int | None, kinds: list[Kind]) -> Site:
    """``key``: what was seen, or why nothing was."""
    about: dict[str, Any] = {"where": where, "what": what, "layer": layer}
    if isinstance(key, str):
        return Site(**about, verdict="not shown", reason=key)
    possible = [kind for kind in kinds if layer is None or layer in kind.layers]
    try:
        judged = [(kind, judge.judge(key, kind)) for kind in possible]
    except NotShown as error:
        return Site(**about, verdict="not shown", reason=str(error))
    kind, best, matches = _best(judged)
    same = [other for k, other in judged if k.layers == kind.layers] if best.by_length else [best]
    notes = (*dict.fromkeys(note for other in same for note in other.notes), *_which(kind, possible, matches))
    if (wrong := best.finding) is None:
        return Site(**about, verdict="right", notes=notes)
    return Site(
        **about, verdict="wrong", cause=wrong.cause, reason=wrong.reason, difference=wrong.difference, notes=notes
    )


def _best(judged: list[tuple[Kind, Judged]]) -> tuple[Kind, Judged, int]:
    """The kind of layer that a rotation is of, or the first that it fails to be, and how many kinds it matches.

    Where the graph chooses tables by length, it must be of the layer's kind for every length.
    """
    wrong = [(kind, one) for kind, one in judged if one.finding is not None]
    failed = {kind.layers for kind, one in wrong if one.by_length}
    right = [(kind, one) for kind, one in judged if one.finding is None and kind.layers not in failed]
    return (*(right or wrong)[0], len(right))


def _which(kind: Kind, possible: list[Kind], matches: int) -> tuple[str, ...]:
    """Of which kind it is, where a layer has one for short and one for long sequences, or no layer could be told."""
    if matches in (0, len(possible)):
        return ()
    if kind.seq_len is not None:
        return (f"as for sequences of {kind.seq_len:,} tokens, and not for others",)
    return (f"as in layers of the kind {kind.name}",)
