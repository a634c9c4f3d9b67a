"""What a kernel is, and what it is given."""

import os
from abc import ABC, abstractmethod
from typing import ClassVar, TypeAlias

import torch
from torch import Tensor

from ...support.tracing import transformed
from ..rotation import Rotation
from ..tables import Phases
from .cache import Cache
from .expression import rotated
from .norm import Norm, Pair, norm_and_rotate, normed
from .order import Order

Angles: TypeAlias = Rotation | Phases

PLAIN = (Tensor, torch.nn.Parameter)
CHOSEN = os.environ.get("PHASOR_KERNEL") or "auto"  # what "auto" means: for reports of bugs


class Kernel(ABC):
    """One way to rotate q and k: one file, one entry in ``KERNELS``. `reference` defines their results.

    ``name`` is what ``kernel=`` takes; ``about`` says in a few words what it is for.
    """

    name: ClassVar[str]
    about: ClassVar[str]

    @abstractmethod
    def why_not(self, q: Tensor, k: Tensor | None, angles: Angles) -> str:
        """Why it cannot rotate these, as a clause for an error; empty if it can. Shapes and dtypes are checked."""

    @abstractmethod
    def rotate(self, q: Tensor, k: Tensor | None, angles: Angles, order: Order, out: Pair | None) -> Pair:
        """q and k rotated: new contiguous tensors, or written to ``out``, which may be q and k themselves.

        ``angles`` are tables, or phases of which a kernel may make tables (`tables_of`) or what it likes better.
        """

    def why_not_norm(self, q: Tensor, k: Tensor | None, norm: Norm) -> str:
        """The same of a norm, for a kernel that can rotate these."""
        return ""

    def norm_and_rotate(
        self, q: Tensor, k: Tensor | None, rotation: Rotation, order: Order, norm: Norm, out: Pair | None
    ) -> Pair:
        """RMSNorm and `rotate`: here the norm in plain PyTorch, as a step of its own."""
        y, z = norm_and_rotate(lambda a, b: self.rotate(a, b, rotation, order, None), q, k, norm, order.heads)
        if norm.rounding == "once":
            dtype = result_dtype(q, rotation)
            y, z = y.to(dtype), None if z is None else z.to(dtype)
        return into(out, y, z)

    def rotate_into_cache(
        self, q: Tensor, k: Tensor, v: Tensor, rotation: Rotation, order: Order, cache: Cache, out: Tensor | None,
        norm: Norm | None = None, v_norm: Norm | None = None,
    ) -> Tensor:  # fmt: skip
        """q rotated; k rotated and v as it is in a cache, each after its norm: here as steps of their own.

        The norm of v is that of a q, with nothing after it. What a float8 cache gets is not rounded before.
        """
        if norm is None:
            y, z = self.rotate(q, k, rotation, order, None)
        else:
            y, z = self.norm_and_rotate(q, k, rotation, order, norm, None)
        assert z is not None
        if cache.k_scale is not None:
            z = unrounded(k, rotation, order, norm)
        if v_norm is not None:
            v = normed(v, v_norm.q_weight, v_norm, order.heads, v.dtype)
            v = v if cache.v_scale is not None else v.to(cache.v.dtype)
        cache.write(z, v.float() if cache.v_scale is not None else v, order)
        return y if out is None else out.copy_(y)


def unrounded(k: Tensor, rotation: Rotation, order: Order, norm: Norm | None) -> Tensor:
    """k rotated, after its norm if there is one, in float32: what is rounded is what its model rounds on the way."""
    cos, sin = order.line_up((rotation.cos, rotation.sin), rotation.per_head)
    second = None if rotation.second is None else order.line_up(rotation.second, rotation.per_head)

    def wide(x: Tensor, _: Tensor | None) -> Pair:
        return rotated(x, cos, sin, rotation.layout, True, second), None

    if norm is None:
        return wide(k, None)[0].float()
    norm = norm._replace(q_weight=norm.k_weight, k_weight=None)
    return norm_and_rotate(wide, k, None, norm, order.heads)[0].float()


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
    """Why a kernel that bypasses PyTorch's dispatcher cannot run: transforms and subclasses must see each operation."""
    if transformed():
        return "a compiler or a function transform is at work, and it has a graph of its own"
    if others := [type(x).__name__ for x in given if not (x is None or type(x) in PLAIN)]:
        return f"it takes plain tensors, got {' and '.join(others)}"
    return ""


def is_batched(x: Tensor) -> bool:
    """Whether autograd goes back with many gradients at once, which have no memory of their own."""
    return torch._C._functorch.is_batchedtensor(x) or torch._C._functorch.is_legacy_batchedtensor(x)


def one_angle(angles: Angles) -> str:
    """Why a kernel with constant cos and sin cannot run: gradients are wanted, or members of a pair differ in angle."""
    if angles.learns:
        return "its gradients do not reach the tables, which need one"
    if angles.second is not None:
        return "it rotates both members of a pair by one angle, and this rotation has second ones"
    return ""


def tensors_of(angles: Angles) -> tuple[Tensor, ...]:
    """What they are given by: one set of tables, or the positions of each axis."""
    return (angles.cos, angles.sin) if isinstance(angles, Rotation) else angles.positions


def tables_of(angles: Angles) -> Rotation:
    return angles if isinstance(angles, Rotation) else Rotation.of(angles)
