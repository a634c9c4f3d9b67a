"""llama.cpp b11549: what its context makes of a file's keys and of flags, and the factors that follow."""

import math
from dataclasses import dataclass

from .base import Flags, Rule
from .gguf import ATTENTION, BASE, FACTOR, LENGTH, LOG, ORIGINAL, TYPE, Metadata

DEEPSEEK = "deepseek2"
CONTEXT = "src/llama-context.cpp: llama_context"


@dataclass(frozen=True)
class Context:
    """What llama.cpp's context holds: the names of its own ``cparams``."""

    base: float
    scale: float
    ext: float
    attn: float
    fast: float
    slow: float
    orig: int
    trained: int


def context_of(meta: Metadata, flags: Flags, rules: list[Rule]) -> Context:
    keys = meta.keys
    trained = int(keys.get(LENGTH) or 0)
    if "--rope-scale" in flags and "--rope-freq-scale" in flags:
        raise ValueError("--rope-scale and --rope-freq-scale say the same thing, one as 1/N of the other; keep one")
    factor = float(keys.get(FACTOR) or 0.0)
    given = 1 / flags["--rope-scale"] if "--rope-scale" in flags else flags.get("--rope-freq-scale")
    scale = float(given if given else 1 / factor if factor else 1.0)
    kind = flags.get("--rope-scaling") or keys.get(TYPE) or "linear"
    if kind not in ("none", "linear", "yarn", "longrope"):
        raise ValueError(f"--rope-scaling must be none, linear or yarn, got {kind!r}")
    if kind == "none":
        scale = 1.0
    orig = int(flags.get("--yarn-orig-ctx") or keys.get(ORIGINAL) or trained)
    asked = flags.get("--yarn-ext-factor", -1.0)
    ext = asked if asked >= 0 else 1.0 if kind == "yarn" else 0.0
    attn = flags.get("--yarn-attn-factor", -1.0)
    attn = attn if attn >= 0 else 1.0
    stretch = 1 / scale
    if ext:
        if "--yarn-attn-factor" in flags:
            rules.append(
                Rule(f"--yarn-attn-factor {attn:g} is overwritten: the factor follows from the stretch", CONTEXT, True)
            )
        attn = own_factor(meta, stretch) / (1 + 0.1 * math.log(stretch))
    if given and kind == "yarn" and scale < 1:
        trained = int(orig / scale)
        rules.append(Rule(f"YaRN flags raise the training length to {orig} x {stretch:g} = {trained}", CONTEXT, True))
    return Context(
        base=float(flags.get("--rope-freq-base") or keys.get(BASE) or 10_000.0), scale=scale, ext=ext,
        attn=attn * float(keys.get(ATTENTION) or 1.0), fast=positive(flags, "--yarn-beta-fast", 32.0),
        slow=positive(flags, "--yarn-beta-slow", 1.0), orig=orig, trained=trained,
    )  # fmt: skip


def positive(flags: Flags, name: str, default: float) -> float:
    return float(flags[name]) if flags.get(name, -1.0) >= 0 else default


def own_factor(meta: Metadata, stretch: float) -> float:
    """YaRN's factor on cos and sin; with a log multiplier the ratio of two, as DeepSeek states them."""

    def mscale(m: float) -> float:
        return 1.0 if stretch <= 1 else 0.1 * m * math.log(stretch) + 1

    log = multiplier(meta)
    if not log:
        return mscale(1.0)
    return mscale(log if meta.arch.name == DEEPSEEK and log != 1 else 1.0) / mscale(log)


def softmax_factor(meta: Metadata, context: Context) -> float:
    """DeepSeek's factor on the softmax, from the stretch, whatever its kind; 1 for other architectures."""
    if meta.arch.name != DEEPSEEK:
        return 1.0
    grown = math.log(1 / context.scale)
    return (context.attn * (1 + 0.1 * grown) * (1 + 0.1 * multiplier(meta) * grown)) ** 2


def multiplier(meta: Metadata) -> float:
    """The log multiplier of the keys; DeepSeek's converter writes a tenth of it."""
    return float(meta.keys.get(LOG) or 0.0) / (0.1 if meta.arch.name == DEEPSEEK else 1.0)
