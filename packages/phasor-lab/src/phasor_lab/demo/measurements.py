"""What the demo measures: how well scores depend on distances alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from phasor import RotarySpec, Rotation, apply_rotary_qk

NEAR, FAR = 7, {1_000_000: "1 million", 2_000_000_000: "2 billion"}
TOO_MUCH = 1e-3  # of a score, as a share of |q| |k|


@dataclass(frozen=True)
class LawResult:
    """Largest change of a score, as a share of ``|q| |k|``, when positions 0 … n-1 move to start at each of ``places``:
    near, the last ones inside the model's own maximum, and two far ones."""

    places: tuple[int, ...]
    exact: tuple[float, ...]
    float32: tuple[float, ...]


def relative_law(
    spec: RotarySpec, heads: int, kv_heads: int, *, maximum: int, tokens: int = 16, seed: int = 0
) -> LawResult:
    """Rotate random float32 q and k of a model's real shape at positions near and far, and compare their scores.

    For every start ``s`` the scores ``(R_{s+m} q) . (R_{s+n} k)`` are compared with those at ``s = 0``, once with exact
    and once with float32 angles. The exact ones may differ only by the rounding of float32 arithmetic.
    """
    places = (NEAR, max(0, maximum - tokens), *FAR)
    generator = torch.Generator().manual_seed(seed)
    q = torch.randn(1, heads, tokens, spec.head_dim, generator=generator)
    k = torch.randn(1, kv_heads, tokens, spec.head_dim, generator=generator)
    k_norm = k.norm(dim=-1).repeat_interleave(heads // kv_heads, 1)
    size = q.norm(dim=-1).unsqueeze(-1) * k_norm.unsqueeze(-2)
    changes = {}
    for angles in ("exact", "float32"):
        variant = spec.replace(angles=angles, tables="float32")
        unmoved = _scores(q, k, variant, 0)
        changes[angles] = tuple(float(((_scores(q, k, variant, p) - unmoved).abs() / size).max()) for p in places)
    return LawResult(places, changes["exact"], changes["float32"])


def _scores(q: Tensor, k: Tensor, spec: RotarySpec, start: int) -> Tensor:
    at = torch.arange(start, start + q.shape[-2])
    if spec.axes.count > 1:
        at = at.expand(spec.axes.count, -1)
    # the length regime is the same at every start: only the positions move
    q, k = apply_rotary_qk(q, k, Rotation.at(spec, at, 1 if spec.length_dependent else None))
    return q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT
