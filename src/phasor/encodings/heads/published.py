"""Weights of published heads, brought into the order of ours."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ...rotary.layout import Layout
from .head import EfficientGlobalPointer, SpanHead


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

    >>> from phasor.span_heads import GlobalPointer
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
    weights = {name: _weights(getattr(head, name), stored, state_dict, entry) for name, entry in names.items()}
    if efficient and stored.even_odd:
        weights = _halves_and_starts_first(weights)
    with torch.no_grad():
        for name, (weight, bias) in weights.items():
            getattr(head, name).weight.copy_(weight)
            getattr(head, name).bias.copy_(bias)


def _weights(layer: nn.Linear, stored: _Stored, state_dict: Mapping[str, Any], name: str) -> tuple[Tensor, Tensor]:
    """Weight and bias of a layer as torch holds them, or ``ValueError`` where they do not fit."""
    if name + stored.weight not in state_dict:
        raise ValueError(f"state_dict must have {name + stored.weight!r}, got {sorted(state_dict)}")
    weight = torch.as_tensor(state_dict[name + stored.weight])
    if weight.ndim != 2:
        raise ValueError(f"{name + stored.weight} must be a matrix, got shape {list(weight.shape)}")
    weight = weight.mT if stored.transposed else weight
    bias = state_dict.get(name + stored.bias)
    bias = weight.new_zeros(weight.shape[0]) if bias is None else torch.as_tensor(bias)
    if weight.shape != layer.weight.shape or bias.shape != layer.bias.shape:
        raise ValueError(
            f"{name} must map {layer.in_features} to {layer.out_features} units in this head, "
            f"got a weight for {weight.shape[1]} to {weight.shape[0]} and {len(bias)} biases"
        )
    return weight, bias


def _halves_and_starts_first(weights: dict[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, Tensor]]:
    """From q in the even and k in the odd units to halves; from (end, start) of each type to (start, end)."""
    (w, b), (ends_w, ends_b) = weights["dense"], weights["ends"]
    units = Layout(head_dim=w.shape[0], interleaved=True).permutation(Layout(head_dim=w.shape[0]))
    swapped = torch.arange(ends_w.shape[0]).view(-1, 2).flip(1).flatten()
    return {"dense": (w[units], b[units]), "ends": (ends_w[swapped][:, units], ends_b[swapped])}
