"""A backend of torch.compile: inductor, after rotations became operators where that is faster.

A backend is the public way into torch.compile. It is given the graph before gradients are made, so that those of the
operator are its own; and before inductor looks for the graph in its cache, so that it needs no key.
"""

import logging
from typing import Any

from torch import Tensor, fx

from ...rotary.kernels.operator import FEW, HALF
from .fuse import found
from .graph import Graph, shown
from .rewrite import rewrite

LOG = logging.getLogger("phasor")


def inductor(
    module: fx.GraphModule, inputs: list[Any], *, mode: str | None = None, options: dict[str, Any] | None = None
) -> Any:
    """``torch.compile(model, backend=phasor.inductor)``: in half precision on a CPU, rotations run in one pass each.

    What inductor itself writes for them converts value by value, and rounds otherwise than the model does when it is
    not compiled; the operator has the model's bits. Found and proved is as in `phasor.fuse`, on random heads of the
    sizes that are compiled; all other rotations stay as they are: float32, few tokens, and sizes that are known only
    when the code runs, for which inductor's own code is as fast. ``mode`` and ``options`` of torch.compile are
    inductor's. The logger ``phasor`` says at level INFO what was found.

    Example::

        model = torch.compile(model.bfloat16(), backend=phasor.inductor)
    """
    from torch._inductor import list_mode_options  # takes seconds to import
    from torch._inductor.compile_fx import compile_fx

    graph = Graph(module, dict(zip(module.graph.find_nodes(op="placeholder"), inputs, strict=True)))
    findings, sites = found(graph, [end for end in graph.ends if _is_better(shown(end))])
    for finding in findings:
        LOG.info("%s", finding)
    rewrite(module, sites)
    return compile_fx(module, inputs, config_patches={**(list_mode_options(mode) if mode else {}), **(options or {})})


def _is_better(value: Tensor) -> bool:
    """Whether the operator is sooner done than what inductor writes."""
    from torch.fx.experimental.symbolic_shapes import guard_or_false

    return value.device.type == "cpu" and value.dtype in HALF and guard_or_false(value.numel() >= FEW)
