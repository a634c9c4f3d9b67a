"""Rotary attention beyond the trained length without training: far keys at positions that are grouped or clipped."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..rotary.apply.calls import rotate
from ..rotary.apply.relative_rotation import check_moves
from ..rotary.spec import RotarySpec
from ..support.checks import whole
from .base import Encoding


@dataclass(frozen=True)
class Part:
    """The pairs of a query at m and a key at n with ``where(m, n)``, rotated at ``q_at(m)`` and ``k_at(n)``."""

    where: Callable[[Tensor, Tensor], Tensor]
    q_at: Callable[[Tensor], Tensor]
    k_at: Callable[[Tensor], Tensor]


class Grouped(Encoding):
    """Rotary encoding by parts: each pair of a query and a key belongs to one part, which has positions of its own.

    The score is ``q^T R(k_at(n) - q_at(m)) k`` of the part of (m, n), and one softmax goes over all parts. Keys are
    rotated for each part when they are read, so a `KVCache` holds them raw. Every published scheme places earlier keys
    only: `attention` takes it with ``causal=True``. ``spec`` has one axis and frequencies that no length changes.

    >>> everywhere = Part(lambda m, n: m - n >= 0, torch.zeros_like, torch.zeros_like)  # no positions at all
    >>> Grouped(RotarySpec(head_dim=2), (everywhere,)).distances(torch.tensor([5]), torch.tensor([0, 5])).tolist()
    [[0, 0]]
    """

    causal_only = True

    def __init__(self, spec: RotarySpec, parts: tuple[Part, ...]) -> None:
        super().__init__()
        check_moves("spec", spec)
        if spec.axes.count != 1 or spec.coordinates == "real":
            raise ValueError(f"spec must have one axis of whole positions to group them, got {spec}")
        self.spec, self.parts = spec, parts

    def rotate_part(
        self, part: Part, q: Tensor, k: Tensor, q_positions: Tensor, k_positions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """q and k as this part has them."""
        return rotate(q, k, part.q_at(q_positions), self.spec, k_positions=part.k_at(k_positions))

    def distances(self, q_positions: Tensor, k_positions: Tensor) -> Tensor:
        """How far apart the scores have a query and a key, int64 ``[..., Q, K]``; right for keys at ``n <= m``.

        >>> SelfExtend(RotarySpec(head_dim=2), group=2, window=4).distances(torch.tensor([9]), torch.arange(10))
        tensor([[6, 6, 5, 5, 4, 4, 3, 2, 1, 0]])
        """
        m, n = q_positions.unsqueeze(-1), k_positions.unsqueeze(-2)
        apart = m - n
        for part in self.parts:
            apart = torch.where(part.where(m, n), part.q_at(m) - part.k_at(n), apart)
        return apart


class SelfExtend(Grouped):
    """Keys nearer than ``window`` stand where they are; farther ones in groups of ``group`` positions.

    Distance ``m - n`` below the window, else ``m // group - n // group + window - window // group``. A model trained on
    L positions reads ``(L - window) * group + window``.

    Source: Jin et al. 2024, arXiv:2401.01325, section 3.2 and the pseudocode of its appendix.

    >>> encoding = SelfExtend(RotarySpec(head_dim=2), group=2, window=4)
    >>> encoding.distances(torch.tensor([9]), torch.tensor([0, 5, 6, 9])).tolist()
    [[6, 4, 3, 0]]
    """

    def __init__(self, spec: RotarySpec, *, group: int, window: int) -> None:
        whole("group", group)
        whole("window", window)
        by = window - window // group  # so that distances of far keys go on from about the window
        super().__init__(
            spec,
            (
                Part(lambda m, n: m - n < window, _here, _here),
                Part(
                    lambda m, n: m - n >= window,
                    lambda m: m.div(group, rounding_mode="floor") + by,
                    lambda n: n.div(group, rounding_mode="floor"),
                ),
            ),
        )


class ReRoPE(Grouped):
    """All keys beyond ``window`` stand at the distance ``window``: ``min(m - n, window)``.

    Source: Su 2023, "Rectified Rotary Position Embeddings", github.com/bojone/rerope.

    >>> ReRoPE(RotarySpec(head_dim=2), window=3).distances(torch.tensor([9]), torch.tensor([0, 6, 7, 9])).tolist()
    [[3, 3, 2, 0]]
    """

    def __init__(self, spec: RotarySpec, *, window: int) -> None:
        whole("window", window)
        super().__init__(
            spec,
            (
                Part(lambda m, n: m - n < window, _here, _here),
                Part(lambda m, n: m - n >= window, lambda m: torch.full_like(m, window), torch.zeros_like),
            ),
        )


class DualChunk(Grouped):
    """Dual chunk attention: chunks of ``chunk`` tokens, none farther away than a model trained on ``trained`` has seen.

    Keys stand at ``n % chunk``; a query at ``m % chunk`` for its own chunk, at ``min(m % chunk + chunk, trained - 1)``
    for the one before, at ``trained - 1`` for all earlier ones. ``chunk`` is less than ``trained``; their difference is
    the paper's local window w. The published code (HKUNLP/ChunkLlama) has ``trained`` where the paper has
    ``trained - 1``: a distance that training never saw.

    Source: An et al. 2024, arXiv:2402.17463, equations 2 to 6 (chunk is its s, trained its c).

    >>> encoding = DualChunk(RotarySpec(head_dim=2), chunk=6, trained=10)
    >>> encoding.distances(torch.tensor([9, 12]), torch.tensor([0, 5, 6, 9])).tolist()
    [[9, 4, 3, 0], [9, 4, 6, 3]]
    """

    def __init__(self, spec: RotarySpec, *, chunk: int, trained: int) -> None:
        whole("chunk", chunk)
        whole("trained", trained)
        if chunk >= trained:
            raise ValueError(f"chunk must be less than the trained length, {trained}, got {chunk}")

        def number(at: Tensor) -> Tensor:
            return at.div(chunk, rounding_mode="floor")

        def inside(at: Tensor) -> Tensor:
            return at.remainder(chunk)

        super().__init__(
            spec,
            (
                Part(lambda m, n: number(m) <= number(n), inside, inside),
                Part(
                    lambda m, n: number(m) - number(n) == 1,
                    lambda m: (inside(m) + chunk).clamp(max=trained - 1),
                    inside,
                ),
                Part(lambda m, n: number(m) - number(n) > 1, lambda m: torch.full_like(m, trained - 1), inside),
            ),
        )


def _here(at: Tensor) -> Tensor:
    return at
