"""Weights of published heads, brought into the order of ours."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...rotary.layout import Layout
from .efficient import EfficientGlobalPointer
from .head import SpanHead


class _Stored(NamedTuple):
    """How a library stores a head: its names of our layers, what a weight is called, and the order of its units."""

    plain: dict[str, str] | None
    efficient: dict[str, str]
    weight: str = ".weight"
    bias: str = ".bias"
    transposed: bool = True  # [in, out]
    even_odd: bool = True  # q in the even and k in the odd units; (end, start) for each type


_LIBRARIES = {
    "bert4keras": _Stored({"dense": "dense"}, {"dense": "p_dense", "ends": "q_dense"}, "/kernel", "/bias"),
    "bert4torch": _Stored(
        {"dense": "dense"}, {"dense": "p_dense", "ends": "q_dense"}, transposed=False, even_odd=False
    ),
    "paddlenlp": _Stored(None, {"dense": "dense1", "ends": "dense2"}),
}


def load_published(head: SpanHead, state_dict: Mapping[str, Any], *, layout: str) -> None:
    """Copy the weights of a published head into ``head``, so that it gives the same scores.

    ``state_dict`` maps names to tensors or arrays as the framework stores them (prefixes taken off):

    ============  ====================================  =============================================
    ``layout``    `GlobalPointer`                       `EfficientGlobalPointer`
    ============  ====================================  =============================================
    bert4torch    ``dense.weight``, ``dense.bias``      ``p_dense.weight`` …, ``q_dense.weight`` …
    bert4keras    ``dense/kernel``, ``dense/bias``      ``p_dense/kernel`` …, ``q_dense/kernel`` …
    paddlenlp     none                                  ``dense1.weight`` …, ``dense2.weight`` …
    ============  ====================================  =============================================

    Kernels of Keras and weights of Paddle are ``[in, out]`` and are transposed here. A head without biases has none
    in its dictionary. The class that PaddleNLP calls ``GlobalPointer`` is the Efficient one. Raises ``ValueError`` for
    a missing, unknown or ill-shaped entry, and for a head whose rotation has halves: published ones are interleaved.

    >>> from phasor.heads import GlobalPointer
    >>> head = GlobalPointer(2, 1, head_dim=2)
    >>> load_published(head, {"dense/kernel": torch.ones(2, 4), "dense/bias": torch.zeros(4)}, layout="bert4keras")
    >>> head(torch.ones(1, 1, 2)).item()  # (2, 2) . (2, 2) / sqrt 2
    5.656854...
    """
    if layout not in _LIBRARIES:
        raise ValueError(f"layout must be one of {', '.join(map(repr, _LIBRARIES))}, got {layout!r}")
    efficient, stored = isinstance(head, EfficientGlobalPointer), _LIBRARIES[layout]
    names = stored.efficient if efficient else stored.plain
    if names is None:
        raise ValueError(
            f"layout {layout!r} has no GlobalPointer (its class of that name is the Efficient one), "
            "use an EfficientGlobalPointer"
        )
    if head.rotary is not None and not head.rotary.interleaved:
        raise ValueError("head must have interleaved pairs to take published weights, got a rotation with halves")
    known = sorted(name + kind for name in names.values() for kind in (stored.weight, stored.bias))
    if unknown := sorted(set(state_dict) - set(known)):
        raise ValueError(f"state_dict has unknown entries {unknown}; layout {layout!r} has {known}")
    weights = {ours: _layer(state_dict, theirs, stored) for ours, theirs in names.items()}
    for ours, theirs in names.items():
        _check(theirs, getattr(head, ours), *weights[ours])
    if efficient and stored.even_odd:
        weights = _halves_and_starts_first(weights)
    for ours, (w, b) in weights.items():
        _copy(getattr(head, ours), w, b)


def _layer(state_dict: Mapping[str, Any], name: str, stored: _Stored) -> tuple[Tensor, Tensor]:
    if name + stored.weight not in state_dict:
        raise ValueError(f"state_dict must have {name + stored.weight!r}, got {sorted(state_dict)}")
    w = torch.as_tensor(state_dict[name + stored.weight])
    if w.ndim != 2:
        raise ValueError(f"{name + stored.weight} must be a matrix, got shape {list(w.shape)}")
    w = w.mT if stored.transposed else w
    bias = state_dict.get(name + stored.bias)
    return w, w.new_zeros(w.shape[0]) if bias is None else torch.as_tensor(bias)


def _halves_and_starts_first(weights: dict[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, Tensor]]:
    """From q in the even and k in the odd units to halves; from (end, start) of each type to (start, end)."""
    (w, b), (ends_w, ends_b) = weights["dense"], weights["ends"]
    units = Layout(head_dim=w.shape[0], interleaved=True).permutation(Layout(head_dim=w.shape[0]))
    swapped = torch.arange(ends_w.shape[0]).view(-1, 2).flip(1).flatten()
    return {"dense": (w[units], b[units]), "ends": (ends_w[swapped][:, units], ends_b[swapped])}


def _check(name: str, layer: nn.Linear, w: Tensor, b: Tensor) -> None:
    if w.shape != layer.weight.shape or b.shape != layer.bias.shape:
        raise ValueError(
            f"{name} must map {layer.in_features} to {layer.out_features} units in this head, "
            f"got a weight for {w.shape[1]} to {w.shape[0]} and {len(b)} biases"
        )


@torch.no_grad()
def _copy(layer: nn.Linear, w: Tensor, b: Tensor) -> None:
    layer.weight.copy_(w)
    layer.bias.copy_(b)
