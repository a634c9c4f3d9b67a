"""The picture of the ONNX page: the nodes that `phasor fuse` takes out of a model's file, and those that it puts in.

    phasor fuse model.onnx -o fused.onnx && python docs/onnx_picture.py model.onnx fused.onnx

On the page: Llama, two layers, as torch 2.13 exports it at opset 18.
"""

import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import onnx

PICTURE = Path(__file__).with_name("onnx_nodes.png")
COLOURS = {"Cos": "#c98a1b", "Sin": "#c98a1b", "RotaryEmbedding": "#1f6f8b"}


def changed(nodes: Any, others: Any) -> list[Any]:
    """The nodes that are not among the others."""
    kept = {(node.op_type, *node.output) for node in others}
    return [node for node in nodes if (node.op_type, *node.output) not in kept]


def placed(nodes: list[Any]) -> dict[int, tuple[float, float]]:
    """Each in front of what reads it, and in a column in the order of what that is."""
    reading = [[j for j, other in enumerate(nodes) if set(node.output) & set(other.input)] for node in nodes]
    columns = [0] * len(nodes)
    for i in reversed(range(len(nodes))):
        columns[i] = min((columns[j] for j in reading[i]), default=1) - 1
    places: dict[int, tuple[float, float]] = {}
    for column in range(0, min(columns) - 1, -1):
        inside = [i for i in range(len(nodes)) if columns[i] == column]
        middle = {i: sum(places[j][1] for j in reading[i]) / max(len(reading[i]), 1) for i in inside}
        for row, i in enumerate(sorted(inside, key=lambda i: (middle[i], i))):
            places[i] = column, row - (len(inside) - 1) / 2
    return places


def drawn(axes: Any, nodes: list[Any], title: str) -> None:
    places, makers = placed(nodes), {name: i for i, node in enumerate(nodes) for name in node.output}
    for i, node in enumerate(nodes):
        for j in (makers[name] for name in node.input if name in makers):
            axes.plot(*zip(places[j], places[i], strict=True), color="#bbbbbb", lw=0.8, zorder=1)
        box = {"boxstyle": "round,pad=0.3", "fc": COLOURS.get(node.op_type, "#777777"), "ec": "none"}
        axes.text(*places[i], node.op_type, color="white", fontsize=6.5, ha="center", va="center", bbox=box, zorder=2)
    columns, rows = zip(*places.values(), strict=True)
    axes.set(xlim=(min(columns) - 0.7, 0.7), ylim=(min(rows) - 0.8, max(rows) + 0.8), title=title)
    axes.axis("off")


def draw(before: Path, after: Path, path: Path) -> None:
    one, other = (onnx.load(file, load_external_data=False).graph.node for file in (before, after))
    gone, new = changed(one, other), changed(other, one)
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3), dpi=120, gridspec_kw={"width_ratios": [5, 3]})
    drawn(left, gone, f"{len(gone)} nodes go")
    drawn(right, new, f"{len(new)} come")
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]), Path(sys.argv[2]), PICTURE)
