"""llama.cpp b11549: what it rotates for a file's keys and flags, and the flags or keys for a wanted rotation."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from phasor import ModelRotary, RotarySpec
from phasor.scaling import Linear, Llama3, LongRoPE, Proportional, Scaling, YaRN

from .base import CannotSayError, Engine, EngineReading, Flags, Rules, Settings, register_engine
from .engine_config import EngineConfig, load_config
from .flags import length, real
from .gguf import (
    ATTENTION,
    BASE,
    BASE_SWA,
    CONVERTER,
    FACTOR,
    LENGTH,
    LOG,
    ORIGINAL,
    TYPE,
    Metadata,
    arch_of,
    converted,
    global_spec,
)
from .serving import FILE, GIB, Reserve, Serving
from .transformers import rewritten

DEEPSEEK = "deepseek2"
CONTEXT = "src/llama-context.cpp: llama_context"
# 32 values and a scale; common/arg.cpp: kv_cache_types; ggml-common.h
BLOCKS = {"q8_0": 8.5, "q5_1": 6.0, "q5_0": 5.5, "q4_1": 5.0, "q4_0": 4.5, "iq4_nl": 4.5}


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


def of_file(config: EngineConfig, flags: Flags, keys: Mapping[str, Any]) -> Rules:
    """What the converter leaves out of config.json, and what is not read of what it writes.

    ``keys``: those that a plan changes in the file, by which it says what would not be read.
    """
    rules = Rules()
    rules.add("what the converter writes of config.json", CONVERTER)
    if any(isinstance(spec.scaling, YaRN) and not spec.scaling.truncate for spec in config.model.distinct):
        rules.add("truncate is not read: the ends of YaRN's ramp are rounded", "ggml-cpu/ops.cpp", True)
    if betas(config).keys() - flags.keys():
        text = "beta_fast and beta_slow are not read from the file, only from --yarn-beta-fast and --yarn-beta-slow"
        rules.add(text, "src/llama-context.cpp", True)
    if arch_of(config).name != DEEPSEEK and config.rope.get("mscale") and config.rope.get("mscale_all_dim"):
        rules.add("mscale and mscale_all_dim are not read: the converter leaves them out", CONVERTER)
    if config.rope.get("attention_factor") is not None and ATTENTION not in keys:
        rules.add("attention_factor is not read from the file", "src/llama-context.cpp", True)
    return rules


def overridden(meta: Metadata, flags: Flags) -> dict[str, Any]:
    """--override-kv KEY=TYPE:VALUE, for keys of this architecture."""
    values: dict[str, Any] = {}
    for entry in filter(None, str(flags.get("--override-kv") or "").split(",")):
        key, equals, value = entry.partition("=")
        kind, colon, text = value.partition(":")
        reads: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str, "bool": "true".__eq__}
        if not equals or not colon or kind not in reads:
            raise ValueError(f"--override-kv must be KEY=TYPE:VALUE with type int, float, bool or str, got {entry!r}")
        arch, dot, inner = key.partition(".")
        if arch == meta.arch.name and dot:
            values[inner] = reads[kind](text)
    return values


def rotation(
    spec: RotarySpec, meta: Metadata, context: Context, sliding: bool, asked: int
) -> tuple[float, Scaling | None]:
    """Base and scaling of the layers that have this spec."""
    base, scale = context.base, context.scale
    if sliding and meta.arch.sliding == "plain":
        return base, None
    if sliding and meta.arch.sliding == "own":
        base, scale = float(meta.keys.get(BASE_SWA) or 10_000.0), 1.0
    elif sliding and meta.arch.sliding == "trained":
        base, scale = float(meta.keys.get(BASE) or 10_000.0), 1 / float(meta.keys.get(FACTOR) or 1.0)
    stretch = 1 / scale
    attention = context.attn * (1 + 0.1 * math.log(stretch) if context.ext else 1.0)
    divisors = meta.freqs if not (sliding and meta.arch.sliding == "own") else ()
    if meta.long:
        divisors = meta.long if asked > context.orig else meta.short
    if (
        divisors == meta.freqs
        and spec.scaling is not None
        and divisors
        and (base, scale, context.ext, attention) == (spec.base, 1, 0, 1)
    ):
        return base, spec.scaling
    if context.ext == 1 and not divisors and stretch >= 1:
        return base, YaRN(
            factor=stretch, original_max_position=context.orig, beta_fast=context.fast, beta_slow=context.slow,
            attention=attention,
        )  # fmt: skip
    if not context.ext and not divisors and attention == 1:
        return base, Linear(stretch) if stretch != 1 else None
    return base, by_pair(spec, base, scale, context, divisors, attention)


def by_pair(
    spec: RotarySpec, base: float, scale: float, context: Context, divisors: tuple[float, ...], attention: float
) -> Scaling:
    """ggml's formula, pair by pair, as a list of divisors: ``theta / divisor``, then YaRN between it and the scaled."""
    dim = spec.rotary_dim
    low, high = (
        dim * math.log(context.orig / (beta * 2 * math.pi)) / (2 * math.log(base))
        for beta in (context.fast, context.slow)
    )
    start, end = max(0.0, math.floor(low)), min(dim - 1.0, math.ceil(high))
    combined = []
    for i in range(dim // 2):
        ramp = 1 - min(1.0, max(0.0, (i - start) / max(0.001, end - start)))
        keep = ramp * context.ext
        divisor = divisors[i] if divisors else 1.0
        combined.append(divisor / (scale * (1 - keep) + keep))
    both = tuple(combined)
    return LongRoPE(
        short_factor=both, long_factor=both, original_max_position=max(context.orig, 2), factor=1.0,
        attention=attention, attention_short=attention,
    )  # fmt: skip


def holds_factors_of(config: EngineConfig, meta: Metadata) -> bool:
    """Whether the factors of frequencies in a file, if it has any, are those of the config's own scaling."""
    if not meta.freqs:
        return True
    factors = converted(config).freqs
    pairs = zip(meta.freqs, factors, strict=False)
    return len(meta.freqs) == len(factors) and all(math.isclose(a, b, rel_tol=1e-6) for a, b in pairs)


def context_of(meta: Metadata, flags: Flags, rules: Rules) -> Context:
    keys = meta.keys
    trained = int(keys.get(LENGTH) or 0)
    if "--rope-scale" in flags and "--rope-freq-scale" in flags:
        raise ValueError("--rope-scale and --rope-freq-scale say the same thing, one as 1/N of the other; keep one")
    factor = float(keys.get(FACTOR) or 0.0)
    stated = 1 / flags["--rope-scale"] if "--rope-scale" in flags else flags.get("--rope-freq-scale")
    scale = float(stated if stated else 1 / factor if factor else 1.0)
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
            rules.add(f"--yarn-attn-factor {attn:g} is overwritten: the factor follows from the stretch", CONTEXT, True)
        attn = own_factor(meta, stretch) / (1 + 0.1 * math.log(stretch))
    if stated and kind == "yarn" and not math.isclose(scale * (factor or 1.0), 1.0, rel_tol=1e-6):  # not the file's own
        trained = int(orig / scale)
        rules.add(f"YaRN flags set the training length to {orig} x {stretch:g} = {trained}", CONTEXT, True)
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


def written(config: EngineConfig, wanted: ModelRotary, length: int) -> list[Settings]:
    """Flags, then keys; whether they give what is wanted is for the reader to say."""
    arch = arch_of(config)
    own, spec = global_spec(config), global_spec(EngineConfig(config.data, config.path, wanted, config.kinds))
    lengthened = {"--override-kv": f"{arch.name}.{LENGTH}=int:{length}"} if length > (wanted_length(config)) else {}
    if spec == own:
        ends = betas(config)
        keys_only = Settings(flags={"-c": length, **ends}, gguf={LENGTH: length, **attention_key(own.scaling)})
        return [Settings(flags={"-c": length, **lengthened, **ends}), keys_only]
    scaling, ends = spec.scaling, betas(EngineConfig(config.data, config.path, wanted, config.kinds))
    flags: dict[str, object] = {"-c": length}
    keys: dict[str, object] = {LENGTH: length}
    if spec.base != own.base:
        flags["--rope-freq-base"] = spec.base
        keys[BASE] = spec.base
    if isinstance(scaling, YaRN):
        if not scaling.truncate:
            raise CannotSayError("llama.cpp rounds the ends of YaRN's ramp: truncate false is lost, at any length")
        factor = float(scaling.factor)
        flags |= {"--rope-scaling": "yarn", "--rope-scale": factor, "--yarn-orig-ctx": scaling.original_max_position}
        keys |= {TYPE: "yarn", FACTOR: factor, ORIGINAL: scaling.original_max_position}
        flags |= ends
        keys |= attention_key(scaling)
    elif isinstance(scaling, Linear):
        flags |= {"--rope-scaling": "linear", "--rope-scale": float(scaling.factor), **lengthened}
        keys |= {TYPE: "linear", FACTOR: float(scaling.factor)}
    elif scaling is None:
        flags |= lengthened
    elif isinstance(scaling, Llama3):
        return [Settings(flags={"-c": length}, config=rewritten(config, wanted, length))]
    elif type(scaling) is not type(own.scaling) or scaling != own.scaling:
        raise CannotSayError(f"llama.cpp has no flag and no key for {scaling.name} scaling{_held(scaling)}")
    return [Settings(flags=flags), Settings(flags={"-c": length, **ends}, gguf=keys)]


def attention_key(scaling: Scaling | None) -> dict[str, object]:
    """The key for a factor on cos and sin that is not the one that llama.cpp takes from YaRN's stretch."""
    if not isinstance(scaling, YaRN):
        return {}
    implied = 1.0 if scaling.factor <= 1 else 0.1 * math.log(scaling.factor) + 1
    same = math.isclose(scaling.attention_factor(), implied, rel_tol=1e-9)
    return {} if same else {ATTENTION: scaling.attention_factor() / implied}


def _held(scaling: Scaling) -> str:
    """Why converting the model again does not help."""
    if isinstance(scaling, LongRoPE):
        return ": its factors are tensors of the GGUF file"
    return ", and its converter does not write the factor" if isinstance(scaling, Proportional) else ""


def betas(config: EngineConfig) -> dict[str, float]:
    """The flags for the ends of YaRN's ramp where they are not the usual ones: no key of the file says them."""
    scaling = global_spec(config).scaling
    if not isinstance(scaling, YaRN):
        return {}
    ends = {"--yarn-beta-fast": (scaling.beta_fast, 32.0), "--yarn-beta-slow": (scaling.beta_slow, 1.0)}
    return {name: float(value) for name, (value, usual) in ends.items() if value != usual}


def wanted_length(config: EngineConfig) -> int:
    return config.model.max_position or 0


class LlamaCpp(Engine):
    name = "llama.cpp"
    version = "b11549"
    flags: ClassVar = {
        "-c": length, "--ctx-size": length, "--rope-scaling": str, "--rope-scale": real, "--rope-freq-base": real,
        "--rope-freq-scale": real, "--yarn-orig-ctx": length, "--yarn-ext-factor": real, "--yarn-attn-factor": real,
        "--yarn-beta-slow": real, "--yarn-beta-fast": real, "--override-kv": str,
    }  # fmt: skip
    serving = Serving(
        command=f"llama-server -m {FILE}",
        draft={"-md": "DRAFT.gguf"},
        caches=BLOCKS,
        cache_flags=lambda dtype: {"-ctk": dtype, "-ctv": dtype, "-fa": "on"},
        page=256,
        reserve=lambda memory, devices: Reserve(
            memory, "-ub 512; --fit-target leaves 1 GiB [llama.cpp/common/common.h]", 512, 0.3 * GIB, GIB, width=4
        ),
    )

    def read(self, config: EngineConfig, flags: Flags) -> EngineReading:
        meta = converted(config)
        return self.read_file(config, meta, flags, of_file(config, flags, overridden(meta, flags)))

    def read_file(self, config: EngineConfig, meta: Metadata, flags: Flags, rules: Rules) -> EngineReading:
        """The rotation of a GGUF file with these keys; ``config`` gives the geometry of the model."""
        flags = {"--ctx-size" if key == "-c" else key: value for key, value in flags.items()}
        meta = replace(meta, keys={**meta.keys, **overridden(meta, flags)})
        context = context_of(meta, flags, rules)
        asked = flags.get("--ctx-size") or context.trained
        if asked > context.trained:
            text = f"llama-server caps -c {asked} at {context.trained}, the training length"
            rules.add(text, "tools/server/server-context.cpp")
        model, own = config.model, holds_factors_of(config, meta)
        specs: dict[tuple[RotarySpec, bool], RotarySpec] = {}
        layers = []
        for word, spec in zip(model.layer_types, model.layers, strict=True):
            sliding = "sliding" in word
            if spec is not None and (spec, sliding) not in specs:
                stated = spec if own else spec.replace(scaling=None)
                base, scaling = rotation(stated, meta, context, sliding, asked)
                specs[spec, sliding] = spec.replace(base=base, scaling=scaling, frequencies=None)
            layers.append(None if spec is None else specs[spec, sliding])
        softmax = softmax_factor(meta, context)
        model = replace(model, layers=tuple(layers), max_position=context.trained, softmax_factor=softmax)
        return self.reading(model, min(asked, context.trained), rules, "src/models/deepseek2.cpp")

    def write(self, config: EngineConfig, wanted: ModelRotary, length: int) -> list[Settings]:
        return written(config, wanted, length)

    def read_back(self, config: EngineConfig, settings: Settings) -> EngineReading:
        again = Rules()
        if settings.config is not None:
            config = load_config(settings.config)
            text = "no flag and no key says this: convert the model again, with the config.json of this plan"
            again.add(text, CONVERTER)
        meta = converted(config)
        keys = settings.gguf or {}
        meta = replace(meta, keys={**meta.keys, **keys})
        return self.read_file(config, meta, settings.flags, Rules([*again, *of_file(config, settings.flags, keys)]))


register_engine(LlamaCpp())
