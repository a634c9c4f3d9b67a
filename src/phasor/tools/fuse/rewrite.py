"""Operators in the place of rotations: what nothing reads any more goes, all else stays."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import fx

from .graph import shown
from .sites import ROTATE, Site, Table

ATEN = torch.ops.aten


def rewrite(module: fx.GraphModule, sites: Sequence[Site]) -> dict[str, str]:
    """Each site's target by `phasor.rotate` of its source, with the strides that it had; tables are formed once.

    Returns the names of the new nodes, by those that they stand for.
    """
    tables: dict[Any, fx.Node] = {}
    made: dict[fx.Node, fx.Node] = {}
    for site in sites:
        cos, sin = (_table(module.graph, site, table, tables) for table in (site.cos, site.sin))
        with module.graph.inserting_before(site.target):
            x = _permuted(module.graph, made.get(site.source, site.source), site.axes)
            new = _node(module.graph, ROTATE, x, cos, sin, site.about, site.tensor_format, site.backwards)
            new = _permuted(module.graph, new, site.back)
        site.target.replace_all_uses_with(new)
        made[site.target] = new
        for node in (site.target, *reversed(site.between)):
            if not node.users and node in module.graph.nodes:
                module.graph.erase_node(node)
    module.graph.lint()
    module.recompile()
    return {old.name: new.name for old, new in made.items()}


def _permuted(graph: fx.Graph, x: fx.Node, axes: Sequence[int]) -> fx.Node:
    return x if list(axes) == sorted(axes) else _node(graph, ATEN.permute.default, x, list(axes))


def _table(graph: fx.Graph, site: Site, table: Table, known: dict[Any, fx.Node]) -> fx.Node:
    """cos or sin as the operator takes it, right behind the node that has it."""
    pairs, drop = site.layout.pairs, site.dropped(table)
    key = table, pairs, tuple(drop)
    if key not in known:
        at = table.node.next
        while at.op in ("placeholder", "get_attr"):
            at = at.next
        with graph.inserting_before(at):
            node = table.node
            if table.part is not None:
                node = _node(graph, ATEN.select.int, _node(graph, ATEN.view_as_real.default, node), -1, table.part)
            for axis in drop:
                node = _node(graph, ATEN.squeeze.dim, node, axis)
            end = table.first + table.step * (pairs - 1) + 1
            node = _node(graph, ATEN.slice.Tensor, node, -1, table.first, end, table.step)
            known[key] = _node(graph, ATEN.clone.default, node, memory_format=torch.contiguous_format)
    return known[key]


def _node(graph: fx.Graph, target: Any, *args: Any, **kwargs: Any) -> fx.Node:
    """A call, and the value that a tracer would note of it."""
    node = graph.call_function(target, args, kwargs)
    values = fx.map_arg(args, shown)
    key = "val" if isinstance(args[0], fx.Node) and "val" in args[0].meta else "example_value"
    node.meta[key] = target(*values, **kwargs)
    return node
