"""Where a model's code rounds cos and sin, seen on a call in which its weights are bfloat16."""

import contextlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ..rotary.spec import Tables
from .operator import Operator
from .sites import varies
from .tape import Operation, Tape

HALF = torch.bfloat16
GIVEN_TABLES = re.compile("rotary|rope")  # arguments that whoever calls the model makes


@contextlib.contextmanager
def in_half(model: nn.Module) -> Iterator[None]:
    """Floating-point weights are bfloat16 inside; outside they are the very tensors that they were.

    So are buffers that files hold, and single numbers, which are made in the dtype of the model that is loaded: what
    scales an embedding. Other buffers are not: frequencies, which are made in float32.
    """
    kept = [(p, p.data) for p in (*model.parameters(), *_buffers(model)) if p.is_floating_point()]
    try:
        for parameter, data in kept:
            parameter.data = data.to(HALF)
        yield
    finally:
        for parameter, data in kept:
            parameter.data = data


def _buffers(model: nn.Module) -> Iterator[Tensor]:
    for module in model.modules():
        for name, buffer in module._buffers.items():
            if buffer is not None and (buffer.numel() == 1 or name not in module._non_persistent_buffers_set):
                yield buffer


def halved(value: Any) -> Any:
    """Inputs in bfloat16, where they are numbers of floating point; tables by which heads turn stay as wide as made."""

    def half(x: Any) -> Any:
        return x.to(HALF) if isinstance(x, Tensor) and x.is_floating_point() else x

    if isinstance(value, Mapping):
        return {name: x if GIVEN_TABLES.search(name) else tree_map(half, x) for name, x in value.items()}
    return tree_map(half, value)


def tables_of(tape: Tape, seen: Operator) -> Tables | None:
    """How tables and products are rounded in a call with bfloat16 weights; None where that cannot be told."""
    tokens = seen.cos.shape[-1]
    for operation in sorted(seen.operations, key=lambda o: o.index):
        if operation.name not in ("mul", "mul_", "addcmul", "bmm", "mm"):
            continue
        inputs = [tape.values[i] for i in operation.inputs if i in tape.data]
        tables = [tape.values[i] for i in operation.inputs if i not in tape.data and _is_table(tape, i, tokens)]
        if len(inputs) != 1 or len(tables) != 1:
            continue
        (x,), (table,) = inputs, tables
        wide = {torch.complex64: torch.float32, torch.complex128: torch.float64}
        data, form = wide.get(x.dtype, x.dtype), wide.get(table.dtype, table.dtype)
        if torch.float64 in (data, form):
            return "float64"
        if form == HALF:
            return "activation" if data == HALF else "rounded"
        if data == HALF:
            kept = tape.values[seen.target].dtype == torch.float32 and not _halved_after(tape, seen, operation)
            return "promoted" if kept else "float32"
        return "rounded" if torch.equal(table.real.to(HALF).float(), table.real.float()) else "float32"
    return None


def _halved_after(tape: Tape, seen: Operator, product: Operation) -> bool:
    """Whether something that a product went into is in half precision, and widened again only then."""
    after = set(product.outputs)
    for operation in sorted(seen.operations, key=lambda o: o.index):
        if operation.index > product.index and after.intersection(operation.inputs):
            after.update(operation.outputs)
    return any(i is not None and tape.values[i].dtype == HALF for i in after)


def _is_table(tape: Tape, number: int, tokens: int) -> bool:
    """Whether a value differs between tokens: all, or some where others pass or have a table of their own."""
    value = tape.values[number]
    some: set[int] = set() if number in tape.weights else {size for size in value.shape[:-1] if 1 < size < tokens}
    return any(varies(value, size) for size in (tokens, *some))
