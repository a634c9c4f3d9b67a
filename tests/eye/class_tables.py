"""The cosines and sines that a model takes while it runs, and whether what was seen to turn has their bits.

Every table is made of them, whatever makes it: so this knows no class, and nothing of how a rotation is found.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from phasor.eye.sites import Side


class Taken(TorchFunctionMode):
    """Complex ``[rows, columns]`` of all angles whose cosine or sine is taken, as the model rounds them."""

    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Tensor] = []
        self._cosines: dict[tuple[Any, ...], Tensor] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in ("cos", "sin") and args and isinstance(args[0], Tensor) and args[0].numel() > 1:
            self._pair(name, args[0], out)
        elif isinstance(out, Tensor) and out.is_complex() and name in ("polar", "exp", "complex"):
            self.tables.append(out.to(torch.complex128).reshape(-1, out.shape[-1]))
        return out

    def _pair(self, name: str, angles: Tensor, out: Tensor) -> None:
        key = (tuple(angles.shape), angles.double().flatten()[:64].numpy().tobytes())
        if name == "cos":
            self._cosines[key] = out
            return
        if key in self._cosines:
            both = torch.complex(self._cosines[key].double(), out.double())
            self.tables.append(both.reshape(-1, out.shape[-1]))


def taken(run: Callable[[], Any]) -> tuple[Any, list[Tensor]]:
    """What ``run`` returns, and the tables made meanwhile; those that come with the call are made by it, too."""
    with Taken() as mode:
        result = run()
    return result, mode.tables


def has_their_bits(side: Side, tables: list[Tensor]) -> bool:
    """Whether each pair of each head turns all tokens by numbers of one column, or not at all."""
    seen = side.operator
    assert seen is not None
    turn = (torch.complex(seen.cos, seen.sin) / seen.factor).flatten(0, 1)  # [heads and pairs, tokens]
    left = _keys(turn, torch.float32).unique(dim=0)
    still = torch.tensor([0.0, 1.0], dtype=torch.complex128)  # padding, and what passes
    for column in (column for table in tables for column in table.T):
        known = torch.cat((column, column.conj(), still))
        for kind in (torch.float32, torch.bfloat16):
            left = left[~torch.isin(left, _keys(known, kind)).all(1)]
        if not len(left):
            return True
    return False


def _keys(values: Tensor, kind: torch.dtype) -> Tensor:
    """One whole number for each complex one, as it is rounded."""
    parts = torch.view_as_real(values.contiguous()).to(kind).float() + 0.0  # no negative zero
    return parts.contiguous().view(torch.int64)[..., 0]
