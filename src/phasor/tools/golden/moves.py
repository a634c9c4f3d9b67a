"""Vectors of keys that move in a cache: from the position they were rotated for to another, in one rotation."""

import dataclasses
from collections.abc import Iterable

import torch
from torch import Tensor

from ...rotary.apply.relative_rotation import as_written, check_distance, check_moves
from .layer_kinds import Kind
from .tensors import Golden, tensors_of

_WORDS = {
    "positions": "how far each key moves, new - old, [S], or one row per axis, [A, S]",
    "k_in": "keys as a cache holds them, rotated to `old` with all factors, [1, heads, S, D]; exact in bfloat16 too",
    "attention_factor": "the factor inside cos and sin: 1, for the keys have theirs already",
}


def moving_kinds(kinds: Iterable[Kind]) -> list[Kind]:
    """For each kind whose rotated keys can move, the kind that moves them: ``NAME_moved``. ``ValueError`` for none."""
    moving, reason = [], "none rotates"
    for kind in kinds:
        if kind.exact is None:
            continue
        spec = kind.exact if kind.seq_len is None else kind.exact.at_length(kind.seq_len)
        try:
            check_moves("spec", spec)
            if spec.coordinates == "real":
                raise ValueError("spec must have integer positions")
        except ValueError as error:
            reason = str(error)
            continue
        name = f"{kind.name}_moved"
        moving.append(
            dataclasses.replace(kind, name=name, spec=as_written(spec), temperature=None, seq_len=None, moved=True)
        )
    if not moving:
        raise ValueError(f"moved needs a kind of layer whose keys can move: {reason}; leave it out")
    return moving


def moved_tensors(kind: Kind, old: Tensor, seed: int) -> dict[str, Golden]:
    """The tensors of a kind that moves keys, each token to the position of another one, near or far."""
    count = old.shape[-1]
    if count < 2:
        raise ValueError(f"positions must name at least 2 for keys that move from one to another, got {count}")
    step = next((s for s in (5, 3, 2) if count % s), 1)
    new = old[..., (torch.arange(count) * step + 1) % count]
    check_distance(old, new, "positions of keys that move")
    tensors = tensors_of(kind, new - old, ("k",), seed)
    tensors |= {name: dataclasses.replace(tensors[name], meaning=words) for name, words in _WORDS.items()}
    where = "[S], or one row per axis, [A, S]"
    return {
        "old": Golden(old, f"the positions that the keys were rotated for, {where}"),
        "new": Golden(new, f"the positions at which they must stand, {where}"),
        **tensors,
    }
