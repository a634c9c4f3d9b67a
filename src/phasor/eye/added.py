"""What is added to the embedding of each token by its position: a row of a learned table, or sines and cosines."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from .tape import Attention, Operation, Tape, upstream


@dataclass(frozen=True, eq=False)
class Added:
    """``values [rows, tokens, channels]`` are added to the tokens, or multiply them (``multiplied``).

    ``table [positions, channels]``: the learned table of which they are rows; None where nothing is learned.
    ``module``: where that is done.
    """

    module: str
    values: Tensor
    table: Tensor | None = None
    multiplied: bool = False

    @property
    def varies(self) -> bool:
        """Whether they differ from token to token."""
        return bool((self.values != self.values[:, :1]).any())

    @property
    def sinusoidal(self) -> bool:
        """Sines and cosines of one angle for each two channels: all rows are as long as the root of half of them."""
        squares = self.values.detach().double().square().sum(-1)
        return bool((squares - self.values.shape[-1] / 2).abs().max() < 1e-3 * self.values.shape[-1])

    @cached_property
    def factor(self) -> float:
        """By which the rows of the table are multiplied, as the longest of them tells; 1 where they are none."""
        if self.table is None:
            return 1.0
        table, values = self.table.detach().double(), self.values.double().flatten(0, 1)
        longest = values[values.norm(dim=-1).argmax()]
        row = table[(torch.nn.functional.normalize(table, dim=-1) @ longest).abs().argmax()]
        factor = float((longest @ row) / (row @ row).clamp(min=1e-30))
        return factor if torch.allclose(factor * row, longest, rtol=1e-2, atol=1e-6) else 1.0

    @cached_property
    def indices(self) -> Tensor | None:
        """``[rows, tokens]``: which rows of the table they are, but for the factor; None where they are none."""
        if self.table is None or not self.factor:
            return None
        table, values = self.table.detach().double(), self.values.double() / self.factor
        nearest = torch.cdist(values.flatten(0, 1), table).argmin(-1)
        if not torch.allclose(table[nearest], values.flatten(0, 1), rtol=1e-2, atol=1e-6):
            return None
        return torch.unflatten(nearest, 0, values.shape[:2])

    @property
    def first(self) -> int | None:
        """The row of the table that the first token gets."""
        return None if self.indices is None else int(self.indices[0, 0])

    def describe(self) -> str:
        if self.multiplied:
            return "the hidden states are multiplied by a table of positions, before any projection"
        if self.table is None or self.sinusoidal:
            return "sinusoidal positions, added to the embeddings"
        rows = "" if self.first is None else f", from row {self.first} of {len(self.table)}"
        return f"learned positions, added to the embeddings{rows}"


def added_before(tape: Tape, attention: Attention) -> Iterator[Added]:
    """Every table that is added to the tokens before the q and k of an attention part, also one of equal rows.

    Which of them say where tokens stand, `Added.varies` tells in a call of several tokens.
    """
    shared = set(upstream(tape, [attention.q])) & set(upstream(tape, [attention.k])) & tape.data
    for operation in tape.operations[: attention.at]:
        if operation.name not in ("add", "add_", "mul") or not shared.intersection(operation.outputs):
            continue
        free = [i for i in operation.inputs[:2] if i not in tape.data]
        if len(free) == 1 and len(operation.inputs) > 1 and _by_token(tape, operation, free[0]):
            yield _added(tape, operation, free[0])


def _by_token(tape: Tape, operation: Operation, number: int) -> bool:
    """Whether a value ``[tokens, channels]`` has a row for each token that it is added to."""
    value, out = tape.values[number], tape.values[operation.outputs[0] or 0]
    return value.is_floating_point() and value.ndim > 1 and value.shape[-2:] == out.shape[-2:] and value.shape[-1] > 1


def _added(tape: Tape, operation: Operation, number: int) -> Added:
    value = tape.values[number].detach()
    weights = [tape.values[i] for i in upstream(tape, [number]) if i in tape.weights]
    tables = [w for w in weights if w.ndim > 1 and w.shape[-1] == value.shape[-1]]
    table = max(tables, key=lambda t: t.numel(), default=None)
    return Added(
        operation.module,
        value.reshape(-1, *value.shape[-2:]),
        None if table is None else table.reshape(-1, table.shape[-1]),
        operation.name == "mul",
    )
