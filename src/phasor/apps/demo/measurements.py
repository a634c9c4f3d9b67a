"""What the demo measures: how well scores depend on distances alone, and what one rotation costs."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec

import torch
from torch import Tensor

from ...rotary.apply import apply_rotary_qk
from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec
from ..bench import medians, race
from ..bench.measure import compared
from ..lab.quick import threads

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


def rotation_speeds(
    tokens: int = 1024, heads: int = 32, kv_heads: int = 8, rounds: int = 15
) -> dict[str, dict[str, float]]:
    """What rotating q and k of Llama-3.1-8B's shape takes by one thread, by dtype: ``milliseconds`` of processor time,
    which other programs do not lengthen; and, if transformers is there, ``ratio``, how many times as long its function
    takes: the median of the rounds' ratios, with their quartiles ``low`` and ``high``."""
    speeds: dict[str, dict[str, float]] = {}
    for dtype in ("float32", "bfloat16"):
        q, k = (torch.randn(1, h, tokens, 128).to(getattr(torch, dtype)) for h in (heads, kv_heads))
        rotation = Rotation.at(RotarySpec(head_dim=128, base=500_000.0), torch.arange(tokens))
        calls: dict[str, Callable[[], object]] = {"phasor": partial(apply_rotary_qk, q, k, rotation)}
        if find_spec("transformers"):
            from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

            cos, sin = (torch.cat((t, t), dim=-1)[None].to(q.dtype) for t in (rotation.cos, rotation.sin))
            calls["transformers"] = partial(apply_rotary_pos_emb, q, k, cos, sin)
        with threads(1):
            times = race(calls, rounds=rounds, warm_up=1)
        speeds[dtype] = {"milliseconds": 1e3 * medians(times)["phasor"]}
        if "transformers" in times:
            result = compared(times, "transformers", "phasor", None)
            low, high = result.spread or (result.ratio,) * 2
            speeds[dtype] |= {"ratio": result.ratio, "low": low, "high": high}
    return speeds
