"""Whether a model rotates q and k as its config says: rotated back they give the loss of the model without rotation."""

import torch
from torch import Tensor

from ..running.model import RunningModel
from .attention import Forward, taken_back, watched

APART = 1e-3  # nats: two ways to stop everything


def check_route(running: RunningModel, rows: Tensor, own: list[Tensor]) -> None:
    """Raise ``ValueError`` unless stopping all pairs before the rotation, and undoing it after, are the same."""
    with running.with_frequencies([torch.zeros_like(f) for f in own], running.factors(rows.shape[1] - 1)):
        before = running.loss(rows)

    def see(layer: int, q: Tensor, k: Tensor, scale: float, forward: Forward) -> tuple[Tensor, Tensor]:
        rotation = running.layers[layer]
        if rotation is None:
            return forward(q, k)
        frequencies = own[running.rotations.index(rotation)]
        return forward(taken_back(q, rotation.spec, frequencies), taken_back(k, rotation.spec, frequencies))

    with watched(running.model, see):
        after = running.loss(rows)
    if not abs(before - after) <= APART:
        raise ValueError(
            f"model must rotate q and k as its config says: rotated back they give a loss of {after:.4f}, and a model "
            f"that does not rotate {before:.4f}; phasor doctor says where it differs"
        )
