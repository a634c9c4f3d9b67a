"""The time of one rotation next to transformers' own function, if that is installed."""

import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec

import torch

from ...rotary.apply import apply_rotary_qk
from ...rotary.rotation import Rotation
from ...rotary.spec import RotarySpec
from ..bench import medians, race


def rotation_times(tokens: int = 1024, heads: int = 32, kv_heads: int = 8, rounds: int = 15) -> dict[str, float]:
    """Median seconds to rotate q and k of Llama-3.1-8B's shape: ``phasor`` and, if installed, ``transformers``."""
    results: dict[str, float] = {}
    for dtype in (torch.float32, torch.bfloat16):
        q, k = (torch.randn(1, h, tokens, 128, dtype=dtype) for h in (heads, kv_heads))
        rotation = Rotation.at(RotarySpec(head_dim=128, base=500_000.0), torch.arange(tokens))
        calls: dict[str, Callable[[], object]] = {"phasor": partial(apply_rotary_qk, q, k, rotation)}
        if find_spec("transformers"):
            from transformers.models.llama.modeling_llama import apply_rotary_pos_emb

            cos, sin = (torch.cat((t, t), dim=-1)[None].to(dtype) for t in (rotation.cos, rotation.sin))
            calls["transformers"] = partial(apply_rotary_pos_emb, q, k, cos, sin)
        times = medians(race(calls, rounds=rounds, warm_up=1, clock=time.perf_counter))
        results |= {f"{name} {str(dtype)[6:]}": seconds for name, seconds in times.items()}
    return results
