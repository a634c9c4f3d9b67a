"""The cases of a CPU, one row each: name, what is timed in words, shape, phasor's call, unit, goals."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from .llama import LLAMA
from .measure import COPY, DTYPES, Case, missing
from .result import Goal

# batch, heads of q, heads of k, tokens, channels
LONG, TOKEN = (1, 32, 8, 4096, 128), (1, 32, 8, 1, 128)
LONG_TEXT = "q [1, 32, 4096, 128] and k [1, 8, 4096, 128]"
TOKEN_TEXT = "one token, q [1, 32, 1, 128] and k [1, 8, 1, 128]"
IN_CLONES = "in units of a clone of both"
IN_COPIES = "in units of `copy_` of both"


def at_most(float32: float, bfloat16: float | None = None, float16: float | None = None) -> Mapping[str, Goal]:
    """Goals by dtype; half precision has that of the dtype before it, unless it is named."""
    bfloat16 = float32 if bfloat16 is None else bfloat16
    bounds = float32, bfloat16, bfloat16 if float16 is None else float16
    return {dtype: Goal("at most", bound) for dtype, bound in zip(DTYPES, bounds, strict=True)}


def peer(name: str, about: str, shape: Any, call: str, least: float, **more: Any) -> Case:
    """transformers in units of phasor."""
    goals = {dtype: Goal("at least", least) for dtype in DTYPES}
    obstacle = partial(missing, "transformers")
    return Case(name, about, shape, call, "phasor", goals, "transformers", obstacle=obstacle, **more)


CASES: tuple[Case, ...] = (
    Case(
        "prefill", f"`rotate` from positions to new outputs, {LONG_TEXT}, {IN_CLONES}",
        LONG, "rotate", "clone", at_most(0.75, 0.75, 0.85), large=True,
    ),
    Case(
        "given", f"the same into outputs that exist (`out=`), {IN_COPIES}",
        LONG, "rotate out", COPY, at_most(0.9), large=True,
    ),
    Case(
        "in-place", f"the same in place (`out=(q, k)`), {IN_COPIES} into other tensors",
        LONG, "rotate in place", COPY, at_most(0.7, 0.85), large=True,
    ),
    Case(
        "rounded", "the same sizes by tables in bfloat16, every product rounded as most model code does, into outputs "
        f"that exist, {IN_COPIES}",
        LONG, "apply rounded", COPY, at_most(1.15), dtypes=("bfloat16",), large=True,
    ),
    Case(
        "training", "forward and backward of `apply_rotary_qk`, q and k [4, 16, 1024, 64], in units of forward and "
        "backward of `x * 1.0` on both",
        (4, 16, 16, 1024, 64), "apply and back", "x * 1.0", at_most(0.8, 0.9), large=True, gradient=True,
    ),
    Case(
        "threads", f"`prefill` on two threads (or on more, if `--threads` says so), wall time, {IN_CLONES}",
        LONG, "rotate", "clone", at_most(0.9), large=True, threads=2,
    ),
    Case(
        "token", f"`rotate` from the position, another one at every call, to new outputs, {TOKEN_TEXT}, {IN_CLONES}",
        TOKEN, "rotate by the next positions", "two clones", at_most(1.8), repeat=500,
    ),
    Case(
        "token-given", "`apply_rotary_qk` of the same by a rotation that exists, as in all layers of a model but the "
        f"first, {IN_CLONES}",
        TOKEN, "apply", "two clones", at_most(1.8), repeat=500,
    ),
    Case(
        "batch", "`rotate` for a batch of 64 decoded tokens, each at a position of its own, q [64, 32, 1, 128] and "
        f"k [64, 8, 1, 128], {IN_CLONES}",
        (64, 32, 8, 1, 128), "rotate by the next positions", "clone", at_most(1.05, 1.3), repeat=50,
    ),
    peer(
        "transformers", "transformers' `apply_rotary_pos_emb` (Llama's; Cohere's for interleaved pairs) at the sizes "
        "of `prefill`, by tables that exist, in units of `apply_rotary_qk`",
        LONG, "apply", 4.5, large=True,
    ),
    peer("transformers-token", f"the same for {TOKEN_TEXT}", TOKEN, "apply", 6, repeat=200),
    peer(
        "norm", "transformers' `Qwen3RMSNorm` and `apply_rotary_pos_emb` one after the other at the sizes of "
        "`prefill`, by tables that exist, in units of `apply_qk_norm_rotary`",
        LONG, "norm", 3, large=True,
    ),
    *LLAMA,
)  # fmt: skip
