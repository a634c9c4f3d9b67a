"""Outputs that the caller gives: each must be able to hold its result, and must not be in the way of another."""

from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ...support.tracing import readable
from ..kernels import Angles, Pair
from ..kernels.base import result_dtype, tensors_of
from ..rotation import Rotation


def check_out(
    out: Any, q: Tensor, k: Tensor | None, angles: Angles, names: tuple[str, str], k_angles: Angles | None = None
) -> Pair:
    """``out`` as a pair, or ``ValueError``. An output may be its own input (in place), and overlap nothing else.

    ``k_angles``: those of k where they are not ``angles``.
    """
    both = (angles, angles if k_angles is None else k_angles)
    pair = out if isinstance(out, tuple | list) else (out, None)
    if len(pair) != 2 or (pair[1] is None) != (k is None):
        raise ValueError(
            f"out must be a tensor, or a pair where {names[0]} and {names[1]} are two, got {_described(out)}"
        )
    for name, x, y, by in zip(names, (q, k), pair, both, strict=True):
        if x is not None:
            _check_one(f"out of {name}" if k is not None else "out", x, y, by)
    inputs, outputs = [q, *([] if k is None else [k])], [y for y in pair if y is not None]
    if all(readable(x) for x in (*inputs, *outputs)):
        _check_overlaps(inputs, outputs)
        if any(readable(t) and overlap(y, t) for y in outputs for by in both for t in tensors_of(by)):
            raise ValueError("out must not overlap the rotation or its positions, which are read while it is written")
    return pair[0], pair[1]


def _check_one(name: str, x: Tensor, y: Any, angles: Angles) -> None:
    dtype = result_dtype(x, angles)
    if not isinstance(y, Tensor) or (y.shape, y.dtype, y.device) != (x.shape, dtype, x.device):
        raise ValueError(
            f"{name} must be {dtype} {tuple(x.shape)} on {x.device}, as the result is, got {_described(y)}"
        )
    tables = [angles.cos, angles.sin] if isinstance(angles, Rotation) else []
    if torch.is_grad_enabled() and any(t.requires_grad for t in (x, y, *tables)):
        raise ValueError(
            f"{name} cannot be written where a gradient is needed (autograd keeps new results only); "
            "call without out=, or use torch.no_grad()"
        )
    if readable(y) and y.is_inference() and not torch.is_inference_mode_enabled():
        raise ValueError(
            f"{name} was made in torch.inference_mode() and can be written there only; give a clone() of it"
        )
    if overlaps_itself(y):
        raise ValueError(f"{name} must not overlap itself, got strides {y.stride()} for shape {tuple(y.shape)}")


def _check_overlaps(inputs: list[Tensor], outputs: list[Tensor]) -> None:
    clashes = [(y, x, not _same(y, x)) for i, y in enumerate(outputs) for j, x in enumerate(inputs) if i == j]
    clashes += [(y, x, True) for i, y in enumerate(outputs) for j, x in enumerate(inputs) if i != j]
    clashes += [(y, z, True) for y, z in combinations(outputs, 2)]
    if any(matters and overlap(a, b) for a, b, matters in clashes):
        raise ValueError("out must not overlap another input or output in part (its own input as a whole is in place)")


def _same(a: Tensor, b: Tensor) -> bool:
    return (a.data_ptr(), a.dtype, _steps(a)) == (b.data_ptr(), b.dtype, _steps(b))


def _steps(x: Tensor) -> list[tuple[int, int]]:
    """``(stride, size - 1)`` of every axis along which there is somewhere to go."""
    return [(stride, size - 1) for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def overlaps_itself(x: Tensor) -> bool:
    """Whether two elements may share an address: an axis steps less far than all smaller ones reach."""
    if x.is_contiguous():
        return False
    steps = _steps(x)  # not to be sorted: to a compiler they may be no numbers
    for i, (stride, _) in enumerate(steps):
        if stride <= sum(other * last for j, (other, last) in enumerate(steps) if j != i and other <= stride):
            return True
    return False


def overlap(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors share an address; of different dtypes, whether their stretches of memory meet."""
    if a.numel() == 0 or b.numel() == 0:
        return False
    apart = b.data_ptr() - a.data_ptr()
    if not -_bytes(b) < apart < _bytes(a):
        return False
    if a.dtype != b.dtype or apart % a.itemsize:
        return True
    ways: dict[int, list[int]] = {}
    for i, x in enumerate((a, b)):
        for stride, last in _steps(x):
            ways.setdefault(stride, [0, 0])[i] += last
    ways.pop(0, None)
    return _meet(apart // a.itemsize, sorted(ways.items(), reverse=True))


def _meet(apart: int, ways: list[tuple[int, list[int]]]) -> bool:
    """Whether ``sum of stride * n = apart`` with ``-down <= n <= up`` for each ``(stride, (up, down))``."""
    if not ways:
        return apart == 0
    (stride, (up, down)), rest = ways[0], ways[1:]
    most, least = sum(s * u for s, (u, _) in rest), -sum(s * d for s, (_, d) in rest)
    first, last = max(-down, -((most - apart) // stride)), min(up, (apart - least) // stride)
    return any(_meet(apart - stride * n, rest) for n in range(first, last + 1))


def _bytes(x: Tensor) -> int:
    """From its first element to the end of its last."""
    if x.is_contiguous():
        return x.nbytes
    return (sum(stride * last for stride, last in _steps(x)) + 1) * x.itemsize


def _described(x: Any) -> str:
    return f"{x.dtype} {tuple(x.shape)} on {x.device}" if isinstance(x, Tensor) else type(x).__name__
