"""Rotary modules that number their tokens themselves: by the length of their input, or by the patches of an image."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ...positions import centres
from ...rotary.spec import RotarySpec
from .agreement import NONE, Agreement, worst
from .compare import best_of
from .tables import Tables

Counts = Literal["patches", "frames"]
TAKES: dict[tuple[str, ...], Counts] = {("pixel_values",): "patches", ("hidden_states",): "frames"}
LENGTHS = (1, 7, 300)
SIDES = ((1, 1), (4, 6), (7, 3))  # patches


@dataclass(frozen=True)
class CountedModule:
    """Methods for such a module.

    ``counts``: the centres of the ``"patches"`` of an image, tables of ``[N, channels]`` (DINOv3); or the ``"frames"``
    of a sequence, cos and sin stacked, ``[2, S, 1, 1, channels]`` (the conformers).
    """

    tables: Tables
    counts: Counts

    def at(self, x: Tensor, patch: tuple[int, int]) -> Any:
        """What the module returns for ``x``."""
        if self.counts == "patches":
            (height, width), (rows, columns) = x.shape[-2:], patch
            at = centres(height // rows, width // columns).to(x.device)
            return tuple(table[0] for table in self.tables.at(x, at[:, None]))
        tables = self.tables.at(x, torch.arange(x.shape[1], device=x.device))
        return torch.stack(tables)[:, :, None, None]

    def methods(self, cls: type[nn.Module]) -> dict[str, Callable]:
        def forward(module: Any, *args: Any, **kwargs: Any) -> Any:
            (x,) = (*args, *kwargs.values())
            if self.counts == "patches" and module.training:  # its class shifts and scales the centres at random
                return cls.forward(module, x)
            return self.at(x, patch_of(module))

        def extra_repr(module: nn.Module) -> str:
            return f"phasor: {self.tables.spec.describe()}"

        return {"forward": forward, "extra_repr": extra_repr}


def counts_of(module: nn.Module) -> Counts | None:
    """What a module counts, as far as its parameters say."""
    return TAKES.get(tuple(signature(module.forward).parameters))


def patch_of(module: Any) -> tuple[int, int]:
    size = getattr(getattr(module, "config", None), "patch_size", 1)
    return (size, size) if isinstance(size, int) else tuple(size)


def compare_counted(
    module: nn.Module, counts: Counts, specs: Sequence[RotarySpec], dtypes: Sequence[torch.dtype]
) -> tuple[Tables | None, Agreement]:
    """The `Tables` out of ``specs`` that agree best with what the module itself returns."""
    module.eval()
    made = (Tables(spec, "doubled", rounded=True) for spec in specs)
    return best_of((t, worst(_agreements(module, CountedModule(t, counts), dtypes))) for t in made)


def _agreements(module: Any, ours: CountedModule, dtypes: Sequence[torch.dtype]) -> Iterator[Agreement]:
    rows, columns = patch = patch_of(module)
    shapes: list[tuple[int, ...]] = [(1, 3, h * rows, w * columns) for h, w in SIDES]
    if ours.counts == "frames":
        shapes = [(1, n, 8) for n in LENGTHS]
    for dtype in dtypes:
        for shape in shapes:
            x = torch.zeros(shape, dtype=dtype)
            if hasattr(module, "cached_sequence_length"):  # it keeps a table in the dtype of an earlier call
                module.cached_sequence_length = None
            try:
                yield Agreement.of(module.forward(x), ours.at(x, patch))
            except (RuntimeError, ValueError):  # pairs or axes of another number
                yield NONE
