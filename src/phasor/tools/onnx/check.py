"""An ONNX file against a model's config: every rotation in it, node by node."""

import os
from typing import Any

from ...models.configs import ModelRotary, read_config
from ..golden.kinds import Kind, kinds_of
from .find import Place, places
from .graph import Graph
from .judge import Judge, Judged
from .read import read_graph
from .report import OnnxReport, Site
from .run import Unread, part_of
from .sizes import Sizes

TRIGONOMETRIC = ("Cos", "Sin")


def check(
    file: str | os.PathLike[str],
    config: str | os.PathLike[str] | dict[str, Any] | ModelRotary | Any,
    *,
    part: str | None = None,
) -> OnnxReport:
    """Whether every rotation in an ONNX file is the one that a config asks for.

    ``config`` is what `phasor.read_config` takes, or its result; ``part`` as there. Found are operators RotaryEmbedding
    (of ai.onnx and of com.microsoft), GroupQueryAttention that rotates, and sums of products with tables of positions,
    however they are formed and joined. Each is run by ONNX's reference on made-up heads, at positions that are near,
    trained and far, and compared with the spec of its layer; where it differs, the known mistake that gives the same is
    named. Weights are not read, and nothing of the file is run but the nodes of its tables and rotations.

    What cannot be read is counted and makes the file not right. Layers are told by the order of the graph: each has one
    rotation for q and one for k. Raises ``ValueError`` for a file that is no ONNX file, that is damaged, or whose
    external data is absent or outside of its folder, and for a config that cannot be read. Needs onnx.

    Example::

        print(phasor.onnx.check("model.onnx", "config.json").describe())
    """
    model = config if isinstance(config, ModelRotary) else read_config(config, part=part)
    turning = [i for i, spec in enumerate(model.layers) if spec is not None]
    if not turning:
        raise ValueError(f"config must have a layer that rotates, got {model.model_type} with none")
    graph = read_graph(file)
    kinds = [kind for kind in kinds_of(model) if kind.spec is not None]
    found, per = places(graph), len(model.targets)
    layers = [i for i in turning for _ in range(per)] if len(found) == per * len(turning) else [None] * len(found)
    judge = Judge(graph, model)
    sites = [_site(judge, place, layer, kinds) for place, layer in zip(found, layers, strict=True)]
    return OnnxReport(tuple(sites), per * len(turning), _stray(graph, found))


def _site(judge: Judge, place: Place, layer: int | None, kinds: list[Kind]) -> Site:
    about = {"node": place.node, "words": place.words, "layer": layer}
    mine = [kind for kind in kinds if layer is None or layer in kind.layers]
    try:
        tried = [(kind, judge.judge(place, kind)) for kind in mine]
    except Unread as error:
        return Site(**about, verdict="not read", says=str(error))  # type: ignore[arg-type]
    kind, judged, right = _one_of(tried)
    same = [other for k, other in tried if k.layers == kind.layers] if judged.by_length else [judged]
    notes = (*dict.fromkeys(note for other in same for note in other.notes), *_which(kind, mine, right))
    if judged.finding is None:
        return Site(**about, verdict="right", notes=notes)  # type: ignore[arg-type]
    return Site(**about, verdict="wrong", cause=judged.finding.cause, says=_says(judged), notes=notes)  # type: ignore[arg-type]


def _one_of(tried: list[tuple[Kind, Judged]]) -> tuple[Kind, Judged, int]:
    """The kind that a place is of, or the first that it fails to be, and of how many it is.

    Where the graph chooses tables by length, it must be of the layer's kind for every length.
    """
    wrong = [(kind, judged) for kind, judged in tried if judged.finding is not None]
    failed = {kind.layers for kind, judged in wrong if judged.by_length}
    right = [(kind, judged) for kind, judged in tried if judged.finding is None and kind.layers not in failed]
    return (*(right or wrong)[0], len(right))


def _which(kind: Kind, mine: list[Kind], right: int) -> tuple[str, ...]:
    """Of which kind it is, where a layer has one for short and one for long sequences, or no layer could be told."""
    if right in (0, len(mine)):
        return ()
    if kind.seq_len is not None:
        return (f"as for sequences of {kind.seq_len:,} tokens, and not for others",)
    return (f"as in layers of the kind {kind.name}",)


def _says(judged: Judged) -> str:
    found = judged.finding
    assert found is not None
    at = "" if found.position is None else f" at position {', '.join(f'{p:.9g}' for p in found.position)}"
    values = (
        "" if found.expected is None else f" (channel {found.channel}{at}: {found.got:.6g} for {found.expected:.6g})"
    )
    return found.says + values


def _stray(graph: Graph, found: list[Place]) -> tuple[str, ...]:
    """Nodes that form cos or sin for something that was not found."""
    sizes, used = Sizes(graph, 8), set()
    for place in found:
        if place.after:
            try:
                used |= set(part_of(graph, place.after, {place.before}, sizes)[0])
            except Unread:
                continue
    named = [(i, node) for i, node in enumerate(graph.nodes) if node.op_type in TRIGONOMETRIC and i not in used]
    return tuple(node.name or node.output[0] for _, node in named)
