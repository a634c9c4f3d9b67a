"""Every rotation of a PyTorch graph that one operator can say becomes that operator, and each is proved."""

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, fx
from torch._subclasses import FakeTensorMode
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.func import functional_call
from torch.fx.passes.fake_tensor_prop import FakeTensorProp
from torch.utils._pytree import tree_leaves, tree_map_only

from ...eye.stretch import CannotSay
from ...support.findings import Difference, Finding
from .graph import Graph, sizes
from .report import ALREADY, FuseReport, outputs_equal, why_none
from .rewrite import rewrite
from .sites import ROTATE, Search, Site

P = TypeVar("P", ExportedProgram, fx.GraphModule)
ROUNDING = {torch.float16: 2e-2, torch.bfloat16: 2e-2}  # of the largest value of an output; else
OF_SINGLES = 2e-4


def fuse(program: P, inputs: Any = None) -> tuple[P, FuseReport]:
    """A copy of a PyTorch graph with one operator for each rotation, whatever it was made of; and what became of each.

    ``program``: what `torch.export.export` gives, or a `torch.fx.GraphModule`. ``inputs``: what it is run on, a tuple
    of arguments, a dictionary or a tensor; by default those that it was exported with.

    A rotation is found by what it does: a stretch of nodes that is linear, and gives the bits of a rotation by values
    that the graph has. It becomes ``torch.ops.phasor.rotate`` of these values, so positions, frequencies and tables
    stay the graph's own. Each is run before and after on random heads, by the tables of two calls, and stays as it was
    unless it is equal to the bit or within the rounding of its products; all outputs of the whole graph are compared,
    too. Weights are shared with ``program``, which stays as it was. To load a saved program, import
    phasor.kernels first.

    Raises ``ValueError`` for a graph in which nothing can be fused, for one whose outputs would change by more than
    rounding, and for a module without inputs.

    >>> def turned(x, cos, sin):
    ...     a, b = x[..., :2], x[..., 2:]
    ...     return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)
    >>> given = torch.randn(1, 2, 7, 4), torch.randn(7, 2), torch.randn(7, 2)
    >>> new, report = fuse(torch.fx.symbolic_trace(turned), given)
    >>> report.fused, report.outputs
    (1, 'all outputs equal to the bit')
    """
    whole = _Program(program) if isinstance(program, ExportedProgram) else _Module(program)
    args, kwargs = whole.arguments(inputs)
    with torch.no_grad():
        graph = whole.graph(args, kwargs)
        findings, sites = found(graph, graph.ends)
        if not sites:
            raise ValueError(f"program has no rotation to fuse: {why_none(findings)}")
        nodes = len(graph.module.graph.nodes)
        new = whole.rewritten(graph.module, sites)
        outputs = _compared(*(_run(one, args, kwargs) for one in (program, new)))
    counts = nodes, len(graph.module.graph.nodes)
    return new, FuseReport(type(program).__name__, tuple(findings), len(sites), counts, outputs)


def found(graph: Graph, ends: Iterable[fx.Node]) -> tuple[list[Finding], list[Site]]:
    """The rotations before these nodes, each once, and what is to be said of each."""
    search, sites, left = Search(graph), dict[fx.Node, Site](), list[Finding]()
    for end in ends:
        try:
            sites.update((site.target, site) for site in search.before(end))
        except CannotSay as reason:
            left.append(Finding(where=where(end), what=repr(end.name), verdict="not shown", reason=str(reason)))
    already = graph.module.graph.find_nodes(op="call_function", target=ROTATE)
    findings = [
        Finding(where=where(s.target), what=str(s), verdict="right", difference=Difference(size=s.difference))
        for s in sites.values()
    ]
    findings += [Finding(where=where(n), what=repr(n.name), verdict="right", reason=ALREADY) for n in already]
    return findings + left, list(sites.values())


class _Module:
    """A `GraphModule` that is to be fused."""

    def __init__(self, program: Any) -> None:
        if not isinstance(program, fx.GraphModule | ExportedProgram):
            raise ValueError(
                f"program must be an ExportedProgram or a GraphModule, got {type(program).__name__}; "
                "torch.export.export(model, args) makes one of a model"
            )
        self.program: Any = program

    def arguments(self, inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Those that stand by position, and those by name."""
        if inputs is None:
            inputs = getattr(self.program, "example_inputs", None)
            if inputs is None:
                raise ValueError("inputs must be given, what the graph takes: it was not exported with any")
            return inputs
        if isinstance(inputs, Mapping):
            return (), dict(inputs)
        return inputs if isinstance(inputs, tuple) else (inputs,), {}

    def graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
        """A copy of its graph, with weights that are shared."""
        module = _copied(self.program)
        names = {str(n.target): n for n in module.graph.find_nodes(op="placeholder")}
        by_name = dict(zip(names, args, strict=False)) | kwargs
        if missing := [name for name, node in names.items() if name not in by_name and not node.args]:
            raise ValueError(f"inputs must have {', '.join(map(repr, names))}, and {missing[0]!r} is missing")
        given = {node: by_name.get(name, *node.args) for name, node in names.items()}
        FakeTensorProp(module, FakeTensorMode(allow_non_fake_inputs=True)).propagate(*given.values())
        return Graph(module, given)

    def rewritten(self, module: fx.GraphModule, sites: Sequence[Site]) -> Any:
        rewrite(module, sites)
        return module


class _Program(_Module):
    """An `ExportedProgram`."""

    def graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Graph:
        program, leaves = self.program, iter(tree_leaves((args, kwargs)))
        module, fixed, given = _copied(program.graph_module), set[fx.Node](), dict[fx.Node, Any]()
        kept, changing = {**program.constants, **program.state_dict}, program.graph_signature.buffers_to_mutate.values()
        for node, spec in zip(
            module.graph.find_nodes(op="placeholder"), program.graph_signature.input_specs, strict=True
        ):
            given[node] = next(leaves) if spec.kind is InputKind.USER_INPUT else kept.get(spec.target)
            if spec.kind is not InputKind.USER_INPUT:
                fixed.update(() if spec.target in changing else (node,))
            elif isinstance(given[node], Tensor) and list(given[node].shape) != sizes(node):
                raise ValueError(
                    f"inputs must have the sizes of the export, {sizes(node)} for {node.name!r}, "
                    f"got {list(given[node].shape)}"
                )
        return Graph(module, given, fixed)

    def rewritten(self, module: fx.GraphModule, sites: Sequence[Site]) -> Any:
        program, signature = self.program, copy.deepcopy(self.program.graph_signature)
        for old, new in rewrite(module, sites).items():
            signature.replace_all_uses(old, new)
        return ExportedProgram(
            module, module.graph, signature, program.state_dict, program.range_constraints, program.module_call_graph,
            program.example_inputs, program.constants, verifiers=program.verifiers,
        )  # fmt: skip


def _copied(module: fx.GraphModule) -> fx.GraphModule:
    """With a graph of its own, and the same weights."""
    made = copy.copy(module)
    made.graph = copy.deepcopy(module.graph)
    return made


def _run(program: Any, args: Any, kwargs: Any) -> Any:
    """Its outputs, by the same random numbers each time; what it writes into is a copy."""
    module = program.module() if isinstance(program, ExportedProgram) else program
    given = dict(module.named_buffers()), args, kwargs
    with torch.random.fork_rng(devices=[]):
        return functional_call(module, *tree_map_only(Tensor, lambda x: x.detach().clone(), given))


def where(node: fx.Node) -> str:
    """The module that a node is of, as a path."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path = re.sub(r"\[['\"]?(\w+)['\"]?\]", r".\1", str(stack[-1][0])) if stack else ""
    return path.removeprefix("L.self").strip(".")


def _compared(before: Any, after: Any) -> str:
    """What became of the outputs; ``ValueError`` where they are others."""
    largest, pairs = 0.0, zip(tree_leaves(before), tree_leaves(after), strict=True)
    for a, b in ((a, b) for a, b in pairs if isinstance(a, Tensor) and a.numel()):
        away = float((a.double() - b.double()).abs().nan_to_num().max() / a.double().abs().nan_to_num().max())
        largest = max(largest, 0.0 if torch.equal(a, b) else away)
        if away > ROUNDING.get(a.dtype, OF_SINGLES) or a.isfinite().ne(b.isfinite()).any():
            raise ValueError("the outputs of the whole graph change by more than rounding, so it was not fused")
    return outputs_equal(largest)
