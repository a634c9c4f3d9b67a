"""What a graph is run on: numbers for its free sizes, ones for masks, and positions where it takes them."""

import re
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from ...models.configs import ModelRotary
from ..golden.layer_kinds import Kind, positions_of
from .graph import Graph
from .operators import DTYPES, small

CALLED = re.compile("seq|len|tok")
PADDED = 3  # tokens at the start of the second sequence that are padding
PARTS = re.compile(r"[ +]+")


class Sizes(dict[str, int]):
    """A number for every free size of a graph: ``tokens`` for the sequence, ``past`` for those before, else the batch.

    Of tokens are the last sizes of integer inputs, first of all of those with a batch; where there are none, sizes that
    are called so; else the second size of inputs with three. Before them were the tokens of inputs with four axes, the
    caches of k and v, where these have sizes of their own, and what is called past.
    """

    def __init__(self, graph: Graph, tokens: int, batch: int, past: int = 0) -> None:
        super().__init__()
        of = [value.type.tensor_type for value in graph.entries]
        inputs = [(DTYPES.get(one.elem_type), [d.dim_param or d.dim_value for d in one.shape.dim]) for one in of]
        integers = [dims for kind, dims in inputs if kind in (torch.int32, torch.int64) and dims]
        alone = [dims[-1] for dims in integers if "batch" not in str(dims[-1]) and dims[-1] != 1]
        called = [n for _, dims in inputs for n in dims if isinstance(n, str) and CALLED.search(n)]
        third = [dims[1] for _, dims in inputs if len(dims) == 3]
        lengths = [dims[-1] for dims in integers if len(dims) > 1] or alone or called or third
        names = {n for length in lengths if isinstance(length, str) for n in PARTS.split(length)}
        caches = [dims for kind, dims in inputs if kind not in (None, torch.int32, torch.int64) and len(dims) == 4]
        before = {n for dims in caches if isinstance(dims[-1], int) for n in dims[1:3]} - set(lengths)
        fixed = [n for n in lengths if isinstance(n, int)]
        self.free = bool(names) or not fixed
        self.tokens = tokens if self.free else max(fixed)
        for name in {n for _, dims in inputs for size in dims for n in PARTS.split(str(size))}:
            earlier = name in before or "past" in name.lower()
            self[name] = int(name) if name.isdigit() else past if earlier else self.tokens if name in names else batch
        self.alike = sum(self[n] == self.tokens for n in names) < 2  # one length of tokens

    def of(self, value: Any) -> list[int]:
        """The shape of an input."""
        dims = value.type.tensor_type.shape.dim
        return [sum(self[n] for n in PARTS.split(d.dim_param)) if d.dim_param else d.dim_value for d in dims]


def inputs(graph: Graph, sizes: Sizes, at: Mapping[str, Tensor], count: bool = False) -> dict[str, Tensor]:
    """By name: positions ``at`` those that take them, ones for masks, else anything; with ``count`` 0, 1, 2, …

    Without it whole numbers are 1, 0, 1, 0, …, and 0, 1, 0, 1, … in a second sequence: what turns by them turns from
    token to token, and every table has such rows.
    """
    made: dict[str, Tensor] = {}
    for value in graph.entries:
        shape, dtype = sizes.of(value), graph.file.kind(value.type.tensor_type.elem_type) or torch.float32
        if value.name in at:
            x = at[value.name]
        elif dtype.is_floating_point:
            x = torch.rand(small(shape), generator=torch.Generator().manual_seed(0))
        elif "mask" in value.name.lower() or dtype == torch.bool:
            x = torch.ones(())
        else:
            numbers = torch.arange(shape[-1] if shape else 1)
            x = (numbers if count else (numbers + 1) % 2).reshape(shape[-1:])
        made[value.name] = x.expand(small(shape)).to(dtype).clone()
        if value.name not in at and not count and shape[-2:-1] == [2] and x.ndim and not dtype.is_floating_point:
            made[value.name].select(-2, 1).sub_(1).neg_()
    return made


def padded(given: Mapping[str, Tensor]) -> None:
    """Masks the first tokens of the second of two sequences."""
    for name, value in given.items():
        if "mask" in name.lower() and value.ndim == 2 and len(value) == 2:
            value[1, :PADDED] = 0


def spread(at: Tensor, shape: list[int]) -> Tensor:
    """Positions ``[(A,) S]`` in the shape of an input; a row more than axes is that of the text, in front."""
    if at.ndim > 1:
        at = at if shape[0] == len(at) else torch.cat((at[:1], at))
        at = at.reshape(shape[0], *[1] * (len(shape) - 2), -1)
    return at.expand(shape)


def numbers_of(kind: Kind, model: ModelRotary, sizes: Sizes, rows: int | None) -> list[list[int]]:
    """Near, trained and far positions, below ``rows`` and in the kind's regime: in one list, or in lists for a graph
    of so many tokens as it has."""
    assert kind.exact is not None
    at = positions_of(kind, model, None)
    usual = (at if at.ndim == 1 else at[0]).tolist()
    below = min(rows or 2**40, kind.seq_len or 2**40)
    if rows is not None:
        below = max(below - 3 * kind.exact.axes.count, 1)
        usual += [below // 2, below - 1]
    usual = sorted({int(n) for n in usual if n < below})
    if sizes.free:
        return [usual]
    count = sizes.tokens
    usual += [n for n in range(len(usual) + count) if n not in usual and n < below][: -len(usual) % count]
    lists = [usual[i : i + count] for i in range(0, len(usual) - count + 1, count)]
    return [numbers for numbers in lists if numbers != [0]]  # where nothing turns, nothing is seen to turn
