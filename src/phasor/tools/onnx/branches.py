"""Tables that a graph chooses by a condition: which branch is taken for sequences of a length."""

from typing import Any

import numpy as np
import torch

from ...models.configs import ModelRotary
from ..golden.kinds import Kind, trained_length
from .find import Place
from .graph import Graph
from .run import Unread, part_of, run
from .sizes import Sizes

TYPES = {6: np.int32, 7: np.int64, 9: np.bool_}  # as TensorProto.DataType numbers them
TOKENS = 64  # of a sequence that is looked at where nothing says another length
LONGEST = 2**24  # tokens: inputs of so many are formed to see what follows from them


def conditions(graph: Graph, place: Place, sizes: Sizes) -> list[str]:
    """What decides which branch of an If behind a place is taken, but for constants."""
    nodes, _, _ = part_of(graph, place.after, {place.before}, sizes)
    found = [graph.nodes[i].input[0] for i in nodes if graph.nodes[i].op_type == "If" and graph.nodes[i].input]
    return [name for name in dict.fromkeys(found) if name not in graph.tensors]


def lengths_of(kind: Kind, model: ModelRotary) -> tuple[int, ...]:
    """Lengths of sequences that a kind is for: the longest, and the shortest where it turns alike."""
    assert kind.exact is not None
    if kind.seq_len is None:
        return TOKENS, model.max_position or TOKENS
    trained = trained_length(kind.exact, model)
    other = trained + 1 if kind.seq_len > trained else min(TOKENS, trained)
    alike = torch.equal(kind.exact.inv_freq(kind.seq_len), kind.exact.inv_freq(other))
    return (kind.seq_len, other) if alike else (kind.seq_len,)


def taken(graph: Graph, names: list[str], tokens: int) -> dict[str, np.ndarray] | None:
    """These conditions for one sequence of so many tokens, from position 0; None where the graph has another length."""
    sizes = Sizes(graph, tokens)
    if sizes.tokens != tokens or tokens > LONGEST:
        return None
    return {name: run(graph, name, _inputs(graph, name, sizes), sizes) for name in names}


def _inputs(graph: Graph, wanted: str, sizes: Sizes) -> dict[str, Any]:
    _, needed, _ = part_of(graph, wanted, set(), sizes)
    found: dict[str, Any] = {}
    for name in needed:
        shape, kind = sizes.of(name), TYPES.get(graph.kinds.get(name, 0))
        if shape is None or kind is None or (np.prod(shape) < sizes.tokens and "pos" not in name.lower()):
            raise Unread(f"which of its tables are taken depends on the input {name!r}")
        tokens = np.arange(shape[-1]) if shape and "mask" not in name.lower() else np.ones(shape[-1:])
        found[name] = np.broadcast_to(tokens, shape).astype(kind)
    return found
