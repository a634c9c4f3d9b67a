"""Where a graph rotates: operators of that name, and sums of two products with tables of positions."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .graph import Graph

DOMAINS = ("", "ai.onnx", "com.microsoft")
SINCE = 23  # the first opset that has RotaryEmbedding
LACKS = "it has no input that it could rotate"
TOLD = ("interleaved", "num_heads", "rotary_embedding_dim")  # attributes that a report names
SAME = ("Cast", "Identity", "Neg")


@dataclass(frozen=True)
class RotationNode:
    """A rotation in the graph: it takes the value ``before`` and gives the value ``after``.

    ``name`` is that of its first node, ``what`` the operator or nodes it is made of, ``index`` its node in the graph.
    """

    name: str
    what: str
    before: str
    after: str
    index: int
    fault: str = ""  # why it cannot be read, where that is known already


def rotation_nodes(graph: Graph) -> list[RotationNode]:
    """Every rotation that is found, in the order of the graph."""
    rotations = [*_operators(graph), *_plain(graph)]
    return sorted(rotations, key=lambda rotation: rotation.index)


def _operators(graph: Graph) -> Iterator[RotationNode]:
    opset = max((entry.version for entry in graph.opsets if entry.domain in DOMAINS[:2]), default=0)
    invalid = f"opset {opset} has no such operator (it came with {SINCE}), so the file is not valid"
    for i, node in enumerate(graph.nodes):
        marks = {a.name: a.i for a in node.attribute}
        if node.op_type == "RotaryEmbedding" and node.domain in DOMAINS:
            attributes = [f"{name}={value}" for name, value in sorted(marks.items()) if name in TOLD]
            before = node.input[0] if node.input else ""
            fault = invalid if node.domain in DOMAINS[:2] and opset < SINCE else LACKS * (not before)
            what = ", ".join((f"RotaryEmbedding of {node.domain or 'ai.onnx'}", *attributes))
            yield RotationNode(_name(node), what, before, node.output[0], i, fault)
        elif marks.get("do_rotary"):  # com.microsoft's Attention, with frequencies that stand nowhere in the file
            yield RotationNode(_name(node), f"{node.op_type} with do_rotary", "", "", i, "it rotates inside")
    for node in graph.hidden():
        if node.op_type == "RotaryEmbedding" or any(a.name == "do_rotary" and a.i for a in node.attribute):
            yield RotationNode(_name(node), node.op_type, "", "", len(graph.nodes), "it stands in a branch")


def _name(node: Any) -> str:
    return node.name or str(node.output[0])


def _plain(graph: Graph) -> Iterator[RotationNode]:
    groups: dict[str, list[int]] = {}
    for i, node in enumerate(graph.nodes):
        if node.op_type in ("Add", "Sub") and (before := _rotated_value(graph, node)):
            groups.setdefault(before, []).append(i)
    for before, sums in groups.items():
        ends = [graph.nodes[i].output[0] for i in sums]
        after = _first(graph, ends)
        name = graph.nodes[sums[0]].name or ends[0]
        if after is None:
            yield RotationNode(name, "plain nodes", before, ends[0], sums[0], "its parts are not joined again")
            continue
        before, after = _with_the_rest(graph, before, after)
        yield RotationNode(name, f"plain nodes up to {after!r}", before, after, sums[0])


def _rotated_value(graph: Graph, node: Any) -> str | None:
    """The value whose parts are multiplied by tables and summed by this node; None where it does nothing like that."""
    parts = []
    for name in node.input:
        while (maker := graph.makers.get(name)) is not None and graph.nodes[maker].op_type in SAME:
            name = graph.nodes[maker].input[0]
        if maker is None or graph.nodes[maker].op_type != "Mul":
            return None
        data = [n for n in graph.nodes[maker].input if not graph.positional(n)]
        table = [n for n in graph.nodes[maker].input if graph.positional(n)]
        if len(data) != 1 or len(table) != 1 or not _is_table(graph, table[0]):
            return None
        parts.append(data[0])
    return _last(graph, parts) if len(parts) == 2 else None


def _is_table(graph: Graph, name: str) -> bool:
    """Whether it differs from token to token and from pair to pair: a weight or a factor does not."""
    if name not in graph.tensors:
        return True
    return sum(size > 1 for size in graph.tensors[name].dims) > 1


def _last(graph: Graph, values: list[str]) -> str | None:
    """The nearest value from which all of these come by moving alone."""
    common = _common([graph.sources(value) for value in values])
    return max(common, key=lambda name: common[name]) if common else None


def _first(graph: Graph, values: list[str]) -> str | None:
    """The nearest value that comes from all of these by moving alone."""
    common = _common([graph.targets(value) for value in values])
    return min(common, key=lambda name: common[name]) if common else None


def _common(places: list[dict[str, int]]) -> dict[str, int]:
    """The names that are in all of these, with their places in the first."""
    return {name: place for name, place in places[0].items() if all(name in others for others in places[1:])}


def _with_the_rest(graph: Graph, before: str, after: str) -> tuple[str, str]:
    """The whole head, where the channels that pass are cut off before and put back behind."""
    for name in graph.targets(after):
        for i in graph.users.get(name, []):
            node = graph.nodes[i]
            if node.op_type != "Concat" or not _along_channels(graph, node, name):
                continue
            rest = [n for n in node.input if n != name]
            whole = _last(graph, [before, *rest])
            if rest and whole is not None:
                return whole, node.output[0]
    return before, after


def _along_channels(graph: Graph, node: Any, name: str) -> bool:
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    return axis == -1 or (name in graph.shapes and axis == len(graph.shapes[name]) - 1)
