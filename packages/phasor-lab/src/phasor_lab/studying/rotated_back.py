"""The loss of a model whose q and k are rotated back in one place, after the model has rotated them."""

import torch
from torch import Tensor

from ..running.model import RunningModel
from .attention import Forward, taken_back, watched
from .places import Place

APART = 1e-3  # nats: two ways to stop everything


def loss_without(running: RunningModel, rows: Tensor, frequencies: list[Tensor], place: Place | None) -> float:
    """The loss with q and k rotated back by ``frequencies`` at a place, or everywhere."""

    def see(layer: int, q: Tensor, k: Tensor, scale: float, forward: Forward) -> tuple[Tensor, Tensor]:
        rotation = running.layers[layer]
        if rotation is None or (place is not None and layer != place.layer):
            return forward(q, k)
        own = frequencies[running.rotations.index(rotation)]
        some = torch.zeros_like(own)
        chosen = slice(None) if place is None else slice(place.first, place.last)
        some[chosen] = own[chosen]
        changed, weights = forward(taken_back(q, rotation.spec, some), taken_back(k, rotation.spec, some))
        if place is None or place.head is None:
            return changed, weights
        out, weights = forward(q, k)  # other heads may share the keys
        out = out.clone()
        out[:, :, place.head] = changed[:, :, place.head]
        return out, weights

    with watched(running.model, see):
        return running.loss(rows)


def check_route(running: RunningModel, rows: Tensor, own: list[Tensor]) -> None:
    """Stopping everything after the rotation, and before it, must be the same."""
    with running.with_frequencies([torch.zeros_like(f) for f in own], running.factors(rows.shape[1] - 1)):
        before = running.loss(rows)
    after = loss_without(running, rows, own, None)
    if not abs(before - after) <= APART:
        raise ValueError(
            f"model must rotate q and k as its config says: rotated back they give a loss of {after:.4f}, and a model "
            f"that does not rotate {before:.4f}; phasor doctor says where it differs"
        )
