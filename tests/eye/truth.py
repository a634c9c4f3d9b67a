"""What a model of the zoo does to its queries, keys, values and outputs, in closed form and without the eye.

A `Turn` is one operator: pairs of channels, an angle and a scale for each head, pair and token, and channels that pass.
An `Other` is anything that is no rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

Pairs = list[tuple[int, int]]


def halves(width: int, first: int = 0) -> Pairs:
    """Channel i with channel i + width / 2."""
    return [(first + i, first + i + width // 2) for i in range(width // 2)]


def neighbours(width: int, first: int = 0) -> Pairs:
    """Channel 2 i with channel 2 i + 1."""
    return [(first + 2 * i, first + 2 * i + 1) for i in range(width // 2)]


def ladder(base: float, width: int) -> list[float]:
    """base ** (-2 i / width): RoFormer, arXiv:2104.09864, section 3.2.2."""
    return [base ** (-2 * i / width) for i in range(width // 2)]


@dataclass(frozen=True, eq=False)
class Turn:
    """Each pair turns by ``positions[axis] * inv_freq + phase`` and is multiplied by ``scale``.

    - ``inv_freq``: one number a pair, or one list a head. ``positions``: one number a token, or one list an axis.
    - ``axis``: of each pair; all pairs are of the first one where it is left out.
    - ``scale``: a number, one a pair, or one a pair and token.
    - ``sources``: the pairs of channels that are read, where they are others than those that are written.
    """

    pairs: Pairs
    inv_freq: Any
    positions: Any
    axis: Sequence[int] | None = None
    passing: Sequence[int] = ()
    scale: Any = 1.0
    phase: Any = 0.0
    sources: Pairs | None = None

    def angles(self) -> Tensor:
        """[heads, pairs, tokens]; one head where all turn alike."""
        positions, inv_freq = (torch.tensor(x, dtype=torch.float64) for x in (self.positions, self.inv_freq))
        of_axis = positions.reshape(-1, positions.shape[-1])[list(self.axis or [0] * len(self.pairs))]
        phase = torch.as_tensor(self.phase, dtype=torch.float64).reshape(-1, 1)
        return inv_freq.reshape(-1, len(self.pairs), 1) * of_axis + phase

    def scales(self) -> Tensor:
        scale = torch.as_tensor(self.scale, dtype=torch.float64)
        return (scale[:, None] if scale.ndim == 1 else scale).expand(self.angles().shape)


@dataclass(frozen=True)
class Other:
    """No rotation, and ``why``."""

    why: str


@dataclass(frozen=True)
class Site:
    """One attention: the path of its module, and what happens to each operand (None: nothing turns)."""

    where: str
    q: Turn | Other | None = None
    k: Turn | Other | None = None
    v: Turn | Other | None = None
    output: Turn | Other | None = None


@dataclass(frozen=True)
class Truth:
    """``rotary``: whether a `phasor.ModelRotary` can say all of it. Where it cannot, none may be given."""

    sites: tuple[Site, ...]
    rotary: bool = True

    @property
    def turns(self) -> bool:
        return any(isinstance(getattr(s, part), Turn) for s in self.sites for part in PARTS)


PARTS = ("q", "k", "v", "output")


@dataclass(frozen=True)
class Case:
    """A model, its inputs and its truth; ``tolerance``: of the arithmetic that the model itself uses for its angles."""

    name: str
    build: Callable[[], nn.Module]
    inputs: tuple[Tensor, ...]
    truth: Truth
    tolerance: float = 1e-5

    def model(self) -> nn.Module:
        """The same weights every time. Biases and weights of norms are not 0 and 1, which would hide them."""
        torch.manual_seed(0)
        model = self.build()
        for module in model.modules():
            if type(module).__name__.endswith("Norm") and getattr(module, "weight", None) is not None:
                nn.init.uniform_(module.weight, 0.5, 1.5)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.uniform_(module.bias, -0.5, 0.5)
        return model.eval()
