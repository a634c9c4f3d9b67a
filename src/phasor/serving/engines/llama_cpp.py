"""llama.cpp b11549: the file's keys, then flags, then one formula for all architectures."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from ...models.configs import ModelRotary
from ...rotary.scaling import Linear, LongRoPE, Scaling, YaRN
from ...rotary.spec import RotarySpec
from .base import Engine, Flags, Reading, Rule, Settings
from .engine_config import Seen
from .engine_rotation import softmax_rules
from .flags import length, real
from .gguf import BASE, BASE_SWA, CONVERTER, FACTOR, Metadata, converted
from .gguf_write import betas, written
from .llama_cpp_context import Context, context_of, softmax_factor


class LlamaCpp(Engine):
    name = "llama.cpp"
    version = "b11549"
    flags: ClassVar = {
        "-c": length, "--ctx-size": length, "--rope-scaling": str, "--rope-scale": real, "--rope-freq-base": real,
        "--rope-freq-scale": real, "--yarn-orig-ctx": length, "--yarn-ext-factor": real, "--yarn-attn-factor": real,
        "--yarn-beta-slow": real, "--yarn-beta-fast": real, "--override-kv": str,
    }  # fmt: skip

    def read(self, seen: Seen, flags: Flags) -> Reading:
        return self.read_file(seen, converted(seen), flags, of_file(seen, flags))

    def read_file(self, seen: Seen, meta: Metadata, flags: Flags, rules: list[Rule]) -> Reading:
        """The rotation of a GGUF file with these keys; ``seen`` gives the geometry of the model."""
        flags = {"--ctx-size" if key == "-c" else key: value for key, value in flags.items()}
        meta = replace(meta, keys={**meta.keys, **overridden(meta, flags)})
        context = context_of(meta, flags, rules)
        asked = flags.get("--ctx-size") or context.trained
        if asked > context.trained:
            text = f"llama-server caps -c {asked} at {context.trained}, the training length"
            rules.append(Rule(text, "tools/server/server-context.cpp"))
        model = seen.model
        made: dict[tuple[RotarySpec, bool], RotarySpec] = {}
        layers = []
        for word, spec in zip(model.layer_types, model.layers, strict=True):
            sliding = "sliding" in word
            if spec is not None and (spec, sliding) not in made:
                base, scaling = rotation(spec, meta, context, sliding, asked)
                made[spec, sliding] = spec.replace(base=base, scaling=scaling, frequencies=None)
            layers.append(None if spec is None else made[spec, sliding])
        softmax = softmax_factor(meta, context)
        model = replace(model, layers=tuple(layers), max_position=context.trained, softmax_factor=softmax)
        return Reading(
            engine=self.name, version=self.version, length=min(asked, context.trained), model=model,
            rules=(*rules, *softmax_rules(model, "src/models/deepseek2.cpp")),
        )  # fmt: skip

    def write(self, seen: Seen, wanted: ModelRotary, length: int) -> list[Settings]:
        return written(seen, wanted, length)

    def read_back(self, seen: Seen, settings: Settings) -> Reading:
        meta = converted(seen)
        meta = replace(meta, keys={**meta.keys, **(settings.gguf or {})})
        return self.read_file(seen, meta, settings.flags, of_file(seen, settings.flags))


def of_file(seen: Seen, flags: Flags) -> list[Rule]:
    """What the converter leaves out of config.json, and what is not read of what it writes."""
    rules = [Rule("what the converter writes of config.json", CONVERTER)]
    if any(isinstance(spec.scaling, YaRN) and not spec.scaling.truncate for spec in seen.model.distinct):
        rules.append(Rule("truncate is not read: the ends of YaRN's ramp are rounded", "ggml-cpu/ops.cpp", True))
    if betas(seen).keys() - flags.keys():
        text = "beta_fast and beta_slow are not read from the file, only from --yarn-beta-fast and --yarn-beta-slow"
        rules.append(Rule(text, "src/llama-context.cpp", True))
    if seen.rope.get("attention_factor") is not None:
        rules.append(Rule("attention_factor is not read from the file", "src/llama-context.cpp", True))
    return rules


def overridden(meta: Metadata, flags: Flags) -> dict[str, Any]:
    """--override-kv KEY=TYPE:VALUE, for keys of this architecture."""
    found: dict[str, Any] = {}
    for entry in filter(None, str(flags.get("--override-kv") or "").split(",")):
        key, equals, value = entry.partition("=")
        kind, colon, text = value.partition(":")
        reads: dict[str, Callable[[str], Any]] = {"int": int, "float": float, "str": str, "bool": "true".__eq__}
        if not equals or not colon or kind not in reads:
            raise ValueError(f"--override-kv must be KEY=TYPE:VALUE with type int, float, bool or str, got {entry!r}")
        arch, dot, inner = key.partition(".")
        if arch == meta.arch.name and dot:
            found[inner] = reads[kind](text)
    return found


def rotation(
    spec: RotarySpec, meta: Metadata, context: Context, sliding: bool, asked: int
) -> tuple[float, Scaling | None]:
    """Base and scaling of the layers that have this spec."""
    base, scale = context.base, context.scale
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
        and (scale, context.ext, attention) == (1, 0, 1)
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
    found = []
    for i in range(dim // 2):
        ramp = 1 - min(1.0, max(0.0, (i - start) / max(0.001, end - start)))
        keep = ramp * context.ext
        divisor = divisors[i] if divisors else 1.0
        found.append(divisor / (scale * (1 - keep) + keep))
    both = tuple(found)
    return LongRoPE(
        short_factor=both, long_factor=both, original_max_position=max(context.orig, 2), factor=1.0,
        attention=attention, attention_short=attention,
    )  # fmt: skip
