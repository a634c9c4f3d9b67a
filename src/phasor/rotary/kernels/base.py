"""What a kernel is, and what it is given."""

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from ...support.tracing import transformed
from ..rotation import Rotation
from ..tables import Phases
from .cache import Cache
from .norm import Norm, Pair, norm_and_turn

Angles: TypeAlias = Rotation | Phases

PLAIN = (Tensor, torch.nn.Parameter)
CHOSEN = os.environ.get("PHASOR_KERNEL") or "auto"  # what "auto" means: for reports of bugs


@dataclass(frozen=True)
class Order:
    """The order of axes: where heads and tokens are, counted from the end; batch sizes are what remains in front.

    ``batch`` is the axis of the one batch that stands behind the tokens, if it does (``"sbhd"``).
    """

    heads: int
    tokens: int
    batch: int | None = None

    def batch_of(self, x: Tensor) -> torch.Size:
        """The sizes of the batch axes of ``x``."""
        return x.shape[:-3] if self.batch is None else x.shape[self.batch : self.heads]

    def line_up(self, tables: tuple[Tensor, Tensor], per_head: bool) -> tuple[Tensor, Tensor]:
        """Views of ``[(B,) (H,) S, P]`` that broadcast to tensors of this order."""
        cos, sin = tables
        if cos.ndim == 2 and self.heads < self.tokens:  # batch and heads stand in front
            return cos, sin
        if not per_head:
            cos, sin = cos.unsqueeze(self.heads), sin.unsqueeze(self.heads)
        elif self.heads == -2:
            cos, sin = cos.transpose(-3, -2), sin.transpose(-3, -2)
        if self.batch is None:
            return cos, sin
        if cos.ndim == 3:  # [S, H, P]
            return cos.unsqueeze(-3), sin.unsqueeze(-3)
        return cos.transpose(-4, -3), sin.transpose(-4, -3)


ORDERS: dict[str, Order] = {  # by tensor_format
    "bhsd": Order(heads=-3, tokens=-2),
    "bshd": Order(heads=-2, tokens=-3),
    "sbhd": Order(heads=-2, tokens=-4, batch=-3),
    "thd": Order(heads=-2, tokens=-3),
}


def format_of(order: Order) -> str:
    """A ``tensor_format`` with this order of axes."""
    return next(name for name, known in ORDERS.items() if known == order)


class Kernel(ABC):
    """One way to turn q and k: one file, one entry in ``KERNELS``. `reference` is what all of them mean.

    ``name`` is what ``kernel=`` takes; ``about`` says in a few words what it is for.
    """

    name: ClassVar[str]
    about: ClassVar[str]

    @abstractmethod
    def why_not(self, q: Tensor, k: Tensor | None, angles: Angles) -> str:
        """Why it cannot turn these, as a clause for an error; empty if it can. Shapes and dtypes are checked."""

    @abstractmethod
    def turn(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        """q and k turned: new contiguous tensors, or written to ``out``, which may be q and k themselves.

        ``angles`` are tables, or phases of which a kernel may make tables (`tables_of`) or what it likes better.
        """

    def why_not_norm(self, q: Tensor, k: Tensor | None, norm: Norm) -> str:
        """The same of a norm, for a kernel that can turn these."""
        return ""

    def norm_and_turn(
        self, q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm, out: Pair | None
    ) -> Pair:
        """RMSNorm and `turn`: here the norm in plain PyTorch, as a step of its own."""
        y, z = norm_and_turn(lambda a, b: self.turn(a, b, rotation, order, None), q, k, norm, order.heads)
        if norm.rounding == "once":
            dtype = result_dtype(q, rotation)
            y, z = y.to(dtype), None if z is None else z.to(dtype)
        return into(out, y, z)

    def turn_into_cache(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, order: Order, cache: Cache, out: Tensor | None
    ) -> Tensor:
        """q turned; k turned and v as it is in a cache: here as steps of their own."""
        y, z = self.turn(q, k, rotation, order, None)
        assert z is not None
        cache.write(z, v, order)
        return y if out is None else out.copy_(y)


def into(out: Pair | None, y: Tensor, z: Tensor | None) -> Pair:
    """The results, in the outputs if any are given. Both were formed before: the outputs may be the inputs."""
    if out is None:
        return y, z
    return out[0].copy_(y), None if z is None or out[1] is None else out[1].copy_(z)


def result_dtype(x: Tensor, angles: Angles) -> torch.dtype:
    """That of what ``angles`` make of ``x``: the wider of both if they are promoted."""
    tables = angles.cos.dtype if isinstance(angles, Rotation) else torch.float32
    return torch.promote_types(x.dtype, tables) if angles.promoted else x.dtype


def float64_tables(angles: Angles) -> str:
    """Why what multiplies in float32 cannot use these."""
    tables = angles.cos.dtype if isinstance(angles, Rotation) else None
    if tables == torch.float64 or (tables is None and angles.spec.tables == "float64"):  # type: ignore[union-attr]
        return "it multiplies in float32, and these tables are float64"
    return ""


def unseen(*given: Tensor | None) -> str:
    """Why what is no operation of torch cannot use these: something would have to see operations."""
    if transformed():
        return "a compiler or a function transform is at work, and it has a graph of its own"
    if others := [type(x).__name__ for x in given if not (x is None or type(x) in PLAIN)]:
        return f"it takes plain tensors, got {' and '.join(others)}"
    return ""


def is_batched(x: Tensor) -> bool:
    """Whether autograd goes back with many gradients at once, which have no memory of their own."""
    return torch._C._functorch.is_batchedtensor(x) or torch._C._functorch.is_legacy_batchedtensor(x)


def one_angle(angles: Angles) -> str:
    """Why what turns pairs by given angles cannot use these."""
    if angles.learns:
        return "its gradients do not reach the tables, which need one"
    if angles.second is not None:
        return "it turns both members of a pair by one angle, and this rotation has second ones"
    return ""


def tensors_of(angles: Angles) -> tuple[Tensor, ...]:
    """What they are given by: one set of tables, or the positions of each axis."""
    return (angles.cos, angles.sin) if isinstance(angles, Rotation) else angles.positions


def tables_of(angles: Angles) -> Rotation:
    return angles if isinstance(angles, Rotation) else Rotation.of(angles)
