"""The cases of a CPU, one row each. The law of calls: every way in, at every shape, in every dtype and layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from .llama import LLAMA
from .measure import CLONE, COPY, DTYPES, LAYOUTS, Case, missing
from .result import Goal

# batch, heads of q, heads of k, tokens, channels
LONG, TOKEN = (1, 32, 8, 4096, 128), (1, 32, 8, 1, 128)


@dataclass(frozen=True)
class Law(Case):
    """All ways in (`ways.LAW`) at one shape, beside a copy of q and k into tensors that exist."""

    call: str = "law"
    unit: str = COPY
    layouts: tuple[str, ...] = tuple(LAYOUTS)

    def moved(self, way: str) -> float:
        """How many times the bytes of q and k a call reads and writes: where values are copied, too, more than once."""
        _, q_heads, k_heads, _, _ = self.shape
        return (q_heads + 2 * k_heads) / (q_heads + k_heads) if way in ("packed", "cache") else 1.0

    def goal(self, way: str, dtype: str, layout: str) -> Goal:
        batch, _, _, tokens, width = self.shape
        here, float32 = "in place" in way, dtype == "float32"
        if batch * tokens == 1:
            return Goal("at most", 1.5)
        if float32:
            return Goal("at most", 1.1 if here else 1.25)
        if layout == "permuted":
            return Goal("at most", 2.0)
        if width % 64 or self.spec:
            return Goal("at most", 1.6)
        if here:
            return Goal("at most", 1.3)
        return Goal("at most", 1.4 if batch > 1 and dtype == "bfloat16" else 1.5)


def law(name: str, about: str, *shape: int, **more: Any) -> Law:
    batch, q_heads, k_heads, tokens, width = shape
    q, k = ([batch, heads, tokens, width] for heads in (q_heads, k_heads))
    return Law(name, f"{about}, q {q} and k {k}", (batch, q_heads, k_heads, tokens, width), **more)


LAW: tuple[Law, ...] = (
    law("one token", "one decoded token, in units of a clone of both", 1, 32, 8, 1, 128, unit=CLONE),
    law("64 tokens", "a short prompt", 1, 32, 8, 64, 128),
    law("1024 tokens", "a longer one", 1, 32, 8, 1024, 128),
    law("64 x 1", "a batch of decoded tokens, each at a position of its own", 64, 32, 8, 1, 128),
    law("4 x 64", "a batch of prompts, each at positions of its own", 4, 32, 8, 64, 128),
    law("width 64", "narrow heads", 1, 32, 8, 256, 64),
    law("width 80", "ragged heads", 1, 32, 8, 256, 80),
    law("width 96", "ragged heads", 1, 32, 8, 256, 96),
    law("64 of 80", "ragged heads of which 16 channels pass", 1, 32, 8, 256, 80, spec={"rotary_dim": 64}),
    law("32 of 80", "ragged heads of which 48 channels pass", 1, 32, 8, 256, 80, spec={"rotary_dim": 32}),
)


def at_most(*bounds: float) -> Mapping[str, Goal]:
    """Goals by dtype."""
    return {dtype: Goal("at most", bound) for dtype, bound in zip(DTYPES, bounds, strict=True)}


def peer(name: str, about: str, shape: Any, call: str, least: float, **more: Any) -> Case:
    """transformers in units of phasor."""
    goals = {dtype: Goal("at least", least) for dtype in DTYPES}
    obstacle = partial(missing, "transformers")
    return Case(name, about, shape, call, "phasor", goals, "transformers", obstacle=obstacle, **more)


# By name only.
OTHERS: tuple[Case, ...] = (
    Case(
        "training", "forward and backward of `apply_rotary_qk`, q and k [4, 16, 1024, 64], in units of forward and "
        "backward of `x * 1.0` on both",
        (4, 16, 16, 1024, 64), "apply and back", "x * 1.0", at_most(0.8, 0.9, 0.9), gradient=True,
    ),
    peer(
        "transformers", "transformers' `apply_rotary_pos_emb` (Llama's; Cohere's for interleaved pairs), q [1, 32, "
        "4096, 128] and k [1, 8, 4096, 128], by tables that exist, in units of `apply_rotary_qk`",
        LONG, "apply", 4.5,
    ),
    peer("transformers-token", "the same for one token", TOKEN, "apply", 6),
    peer(
        "norm", "transformers' `Qwen3RMSNorm` and `apply_rotary_pos_emb` one after the other at the sizes of "
        "`transformers`, by tables that exist, in units of `apply_qk_norm_rotary`",
        LONG, "norm", 3,
    ),
    *LLAMA,
)  # fmt: skip
CASES: tuple[Case, ...] = (*LAW, *OTHERS)
