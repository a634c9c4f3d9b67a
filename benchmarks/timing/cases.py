"""The cases of a CPU, one row each: name, what is timed in words, shape, phasor's call, unit, goals."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from phasor.axes import Sections

from .llama import LLAMA
from .measure import COPY, DTYPES, Case, missing
from .result import Goal
from .ways import no_engine

# batch, heads of q, heads of k, tokens, channels
LONG, TOKEN = (1, 32, 8, 4096, 128), (1, 32, 8, 1, 128)
LONG_TEXT = "q [1, 32, 4096, 128] and k [1, 8, 4096, 128]"
TOKEN_TEXT = "one token, q [1, 32, 1, 128] and k [1, 8, 1, 128]"
IN_CLONES = "in units of a clone of both"
IN_COPIES = "in units of `copy_` of both"
WIDTHS = {"80": (80, 80), "96": (96, 96), "112": (112, 112), "64-16": (64, 16), "80-32": (80, 32), "128-32": (128, 32)}


def at_most(float32: float, bfloat16: float | None = None, float16: float | None = None) -> Mapping[str, Goal]:
    """Goals by dtype; half precision has that of the dtype before it, unless it is named."""
    bfloat16 = float32 if bfloat16 is None else bfloat16
    bounds = float32, bfloat16, bfloat16 if float16 is None else float16
    return {dtype: Goal("at most", bound) for dtype, bound in zip(DTYPES, bounds, strict=True)}


def at_least(bound: float) -> Mapping[str, Goal]:
    return {dtype: Goal("at least", bound) for dtype in DTYPES}


def peer(
    name: str, about: str, shape: Any, call: str, least: float, measured: str = "transformers", **more: Any
) -> Case:
    """Another library in units of phasor."""
    obstacle = more.pop("obstacle", partial(missing, "transformers"))
    return Case(name, about, shape, call, "phasor", at_least(least), measured, obstacle=obstacle, **more)


def engine(name: str, title: str, dtypes: tuple[str, ...]) -> Case:
    about = (
        f"{title}'s CPU kernel, in place on q [4096, 32 * 128] and k [4096, 8 * 128], by a table in their dtype, in "
        "units of `apply_rotary_qk` in place on the same"
    )
    obstacle = partial(no_engine, name)
    return peer(name, about, LONG, "apply to tokens in place", 1, name, obstacle=obstacle, dtypes=dtypes, large=True)


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
        "token-training", "forward and backward of that, in units of forward and backward of `x * 1.0` on both",
        TOKEN, "apply and back", "x * 1.0", at_most(2.0), gradient=True, repeat=100,
    ),
    Case(
        "batch", "`rotate` for a batch of 64 decoded tokens, each at a position of its own, q [64, 32, 1, 128] and "
        f"k [64, 8, 1, 128], {IN_CLONES}",
        (64, 32, 8, 1, 128), "rotate by the next positions", "clone", at_most(1.05, 1.3), repeat=50,
    ),
    *(
        Case(
            f"token-{name}", f"`apply_rotary_qk` {about}, {TOKEN_TEXT}, {IN_CLONES}",
            TOKEN, call, "two clones", at_most(1.8), repeat=500,
        )
        for name, about, call in (
            ("in-place", "in place (`out=(q, k)`)", "apply in place"),
            ("out", "into outputs that exist (`out=`)", "apply out"),
            ("flat", "of flat heads (`num_heads=`) to new outputs", "apply to flat heads"),
            ("packed", "in place in one packed projection, `apply_rotary_qkv`", "apply to a packed projection"),
        )
    ),
    peer(
        "transformers-given", f"transformers' function in units of `apply_rotary_qk` in place, {TOKEN_TEXT}",
        TOKEN, "apply in place", 5, repeat=200,
    ),
    *(
        Case(
            f"batch-{n}", f"`apply_rotary_qk` in place for {n} decoded tokens, each at a position of its own, "
            f"q [{n}, 32, 1, 128] and k [{n}, 8, 1, 128], {IN_COPIES} into other tensors",
            (n, 32, 8, 1, 128), "apply in place", COPY, at_most(1.5), repeat=max(10, 1000 // n),
        )
        for n in (4, 16, 64, 256)
    ),
    *(
        Case(
            f"width-{name}", f"`apply_rotary_qk` into outputs that exist, heads of {width} channels of which {turned} "
            f"rotate, q [1, 32, 512, {width}] and k [1, 8, 512, {width}], {IN_COPIES}",
            (1, 32, 8, 512, width), "apply out", COPY, at_most(1.8, 2.5), spec={"rotary_dim": turned}, repeat=5,
        )
        for name, (width, turned) in WIDTHS.items()
    ),
    *(
        peer(
            f"transformers-{name}", f"transformers' function on the heads of `width-{name}`, slices and `cat` for "
            "channels that pass, in units of `apply_rotary_qk` to new outputs",
            (1, 32, 8, 512, width), "apply", 1, spec={"rotary_dim": turned}, repeat=3,
        )
        for name, (width, turned) in WIDTHS.items()
    ),
    peer(
        "transformers-short", "transformers' function on 8 prompts of 64 tokens, q [8, 32, 64, 128] and "
        "k [8, 8, 64, 128], in units of `apply_rotary_qk` to new outputs",
        (8, 32, 8, 64, 128), "apply", 1, repeat=3,
    ),
    peer(
        "transformers-images", "the same on 4 images of 32 x 32 patches, by two axes, q and k [4, 16, 1024, 80]",
        (4, 16, 16, 1024, 80), "apply", 1, spec={"axes": Sections((20, 20)), "base": 10_000.0}, repeat=2,
    ),
    Case(
        "permuted", "pairs read interleaved and written as halves (DeepSeek's), q [1, 16, 512, 64] and "
        f"k [1, 1, 512, 64], to new outputs, {IN_CLONES}",
        (1, 16, 1, 512, 64), "apply", "clone", at_most(2.2), spec={"permuted": True}, layouts=("interleaved",),
        repeat=10,
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
    peer(
        "norm-back", "the backward passes of both, to the gradients of q, k and the weight",
        LONG, "norm, backwards", 2, large=True, gradient=True,
    ),
    peer("norm-token", f"`norm` for {TOKEN_TEXT}", TOKEN, "norm", 3, repeat=200),
    peer(
        "onnxruntime", "onnxruntime's RotaryEmbedding (opset 23, one session for q and k, inputs and outputs bound) at "
        "the sizes of `prefill`, in units of `apply_rotary_qk` into outputs that exist; it has no bfloat16",
        LONG, "apply out", 1.5, "onnxruntime", obstacle=partial(missing, "onnx", "onnxruntime"),
        dtypes=("float32", "float16"), large=True,
    ),
    engine("vllm", "vLLM", ("float32", "bfloat16", "float16")),
    engine("sglang", "SGLang", ("bfloat16", "float16")),
    *LLAMA,
)  # fmt: skip
