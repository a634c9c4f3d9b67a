"""SGLang 0.5.23: transformers' config classes, --json-model-override-args merged into them, and its own rotations."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from phasor import ModelRotary
from phasor.scaling import NTK, LongRoPE

from .base import CannotSayError, Engine, EngineReading, Flags, NotReadError, Rules, Settings, facts_of, register_engine
from .engine_config import ORIGINAL, ROPES, EngineConfig, renamed, walk
from .flags import json_object, length
from .rope import PLAIN, BaseAndScaling, Rope, need, others, refuse_longer, rotated, share_alone, with_mscales, yarn
from .serving import GIB, MIB, MODEL, Reserve, Serving
from .support import passes

OLMO3 = "sglang/srt/configs/olmo3.py: Olmo3Config, run by models/olmo2.py"
FACTORY = "sglang/srt/layers/rotary_embedding/factory.py: get_rope"
CONFIG = "sglang/srt/utils/hf_transformers/config.py: get_config"
LENGTH = "sglang/srt/utils/hf_transformers/common.py: get_context_length"
SOFTMAX = "sglang/srt/models/deepseek_common/utils.py: compute_mla_mscale_scaling"
DEFAULTED = {"yarn": ("factor", ORIGINAL), "linear": ("factor",), "dynamic": ("factor",)}
YARN = ("beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate")


@dataclass(frozen=True)
class SGLangModel:
    """What SGLang's code for a model type does otherwise; read in ``sglang/srt/models``, not run.

    ``theta``: the base without rope_theta; ``reads``: keys of YaRN; ``whole``: the base is made a whole number;
    ``scaled``: False where rope parameters beside the base are not passed on; ``flat``: its own config class holds one
    dictionary for all layers, of which windowed layers have the base alone.
    """

    theta: float = 10_000.0
    reads: tuple[str, ...] = YARN
    whole: bool = False
    scaled: bool = True
    flat: bool = False


MODELS = facts_of("sglang", SGLangModel)


def reserve(memory: int, devices: int) -> Reserve:
    """``reserved_mem`` of its own default for mem_fraction_static, which leaves the rest to weights and cache."""
    steps = ((20, 2048, 8, 8), (35, 4096, 48, 160), (60, 4096, 32, 160), (160, 8192, 256, 512))
    tokens, few, many = next((rest for size, *rest in steps if memory < size * GIB), (16384, 512, 512))
    reserved = 512 + 1.5 * tokens + 1024 / 8 * devices + 2 * (few if devices < 4 else many)
    reserved = max(reserved, 10 * 1024) if memory > 60 * GIB else reserved
    source = f"--mem-fraction-static {1 - reserved * MIB / memory:.3f} [sglang/srt/arg_groups/memory_hook.py]"
    return Reserve(memory - reserved * MIB, source)


class SGLang(Engine):
    name = "sglang"
    version = "0.5.23"
    flags: ClassVar = {
        "--json-model-override-args": json_object, "--context-length": length,
        "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": str,
    }  # fmt: skip
    serving = Serving(
        command=f"python -m sglang.launch_server --model-path {MODEL}",
        devices="--tensor-parallel-size",
        draft={"--speculative-algorithm": "STANDALONE", "--speculative-draft-model-path": "DRAFT"},
        caches={"fp8": 8.0},  # sglang/srt/server_args.py: --kv-cache-dtype
        cache_flags=lambda dtype: {"--kv-cache-dtype": "fp8_e4m3"},
        reserve=reserve,
        index_in_8_bits="sglang/srt/mem_cache/memory_pool.py: NSATokenToKVPool",
    )

    def read(self, config: EngineConfig, flags: Flags) -> EngineReading:
        rules = Rules()
        rope, declared = overridden(config, flags.get("--json-model-override-args") or {}, rules)
        ropes, taken = by_kind(config, rope), longest(rope, declared, flags, rules)
        facts = model_of(config)
        model = rotated(config, lambda kind: rotation(config, facts, ropes[kind], declared, rules))
        return self.reading(replace(model, max_position=declared), taken, rules, SOFTMAX)

    def write(self, config: EngineConfig, wanted: ModelRotary, length: int) -> list[Settings]:
        plain = {kind: written(rope, config, length) for kind, rope in parameters(config, wanted).items()}
        ropes = {kind: with_mscales(rope) for kind, rope in plain.items()}
        if any("truncate" in rope and "mscale" in rope and config.inside for rope in ropes.values()):
            raise CannotSayError("SGLang's YaRN with M-RoPE takes no mscale")
        text: dict[str, Any] = {}
        if wanted.layers != config.model.layers or ropes != plain:
            text["rope_parameters"] = ropes.get("", ropes)
        if (config.model.max_position or 0) < length:
            text["max_position_embeddings"] = length
        override = {"--json-model-override-args": config.nested(text)} if text else {}
        return [Settings(flags={**override, "--context-length": length})]


register_engine(SGLang())


def model_of(config: EngineConfig) -> SGLangModel:
    """What was read of the model's file by hand, and what its call of get_rope passes."""
    word, facts = passes("sglang", config), MODELS.get(config.name, SGLangModel())
    return replace(facts, whole=facts.whole or "whole" in word, scaled="base" not in word)


def parameters(config: EngineConfig, model: ModelRotary | None = None) -> dict[str, Rope]:
    """`EngineConfig.parameters`, by the kinds of layers that SGLang tells apart."""
    by_kind = config.parameters(model)
    if not model_of(config).flat:
        return by_kind
    return {"": {**({} if model else renamed(config.rope)), **by_kind["full_attention"]}}


def overridden(config: EngineConfig, override: dict[str, Any], rules: Rules) -> tuple[Rope, int | None]:
    """The dictionary of rope parameters and the declared length after the override, whose keys are set one by one.

    Both names are one dictionary. What is set as ``rope_scaling`` is standardised by the config's class.
    """
    ropes, declared, base = parameters(config), config.model.max_position, None
    rope: Rope = dict(ropes.get("", ropes))
    text, outside = walk(override, config.inside)
    for name in outside:
        if name in ROPES or name in ("rope_theta", "max_position_embeddings"):
            rules.add(f"{name} has no effect: the text model reads {config.inside}.{name}", CONFIG, True)
    for name, value in text.items():
        if name == "max_position_embeddings":
            declared = value
        elif name == "rope_theta":
            base = value
        elif name == "partial_rotary_factor":
            same_share(config, value, ropes)
        elif name in ROPES and isinstance(value, dict):
            what = "replaces the whole dictionary" if config.inside else "is merged into the dictionary"
            rules.add(f"the override of rope_parameters {what}", CONFIG, True)
            rope = dict(value) if config.inside else {**rope, **value}
            if name == "rope_scaling" and "" in ropes:
                rope = standardised(rope, base, declared, config.text.get(ORIGINAL))
    return rope, declared


def standardised(rope: Rope, base: float | None, declared: int | None, original: int | None) -> Rope:
    """What transformers' setter of rope_scaling adds: the type, the base beside it, and the original length.

    The length is ``original``, that of the config beside the dictionary, as Phi-3 has it, else the declared one.
    """
    rope = {"rope_type": rope.get("type", "default"), **rope}
    if "rope_theta" not in rope:
        if base is None:
            raise ValueError(
                "text_config.rope_scaling must state rope_theta: it replaces the whole dictionary, and SGLang stops "
                "without a base; add it"
            )
        rope["rope_theta"] = base
    if rope["rope_type"] in ("llama3", "yarn", "longrope"):
        rope[ORIGINAL] = original or rope.get(ORIGINAL) or declared
    return rope


def by_kind(config: EngineConfig, stated: Rope) -> dict[str, Rope]:
    """The rope parameters of each kind of layer; raises where they are another share of a head than the config's."""
    if model_of(config).flat:
        if nested := [kind for kind, value in stated.items() if isinstance(value, dict)]:
            raise ValueError(
                f"rope_parameters.{nested[0]} stops SGLang with a TypeError: for {config.name} it holds one dictionary "
                f"for all layers ({OLMO3}); state it flat"
            )
        near = {"rope_type": "default", "rope_theta": stated["rope_theta"]}
        return {kind: near if "sliding" in kind else stated for kind in dict.fromkeys(config.kinds)}
    kinds = config.parameters()
    if any(config.kinds) and (missing := [kind for kind in kinds if not isinstance(stated.get(kind), dict)]):
        raise ValueError(f"rope_parameters must have the key {missing[0]!r}: SGLang reads it by kind of layer")
    ropes = {kind: dict(stated[kind]) if any(config.kinds) else stated for kind in kinds}
    for kind, rope in ropes.items():
        same_share(config, rope.get("partial_rotary_factor"), {kind: kinds[kind]})
    return ropes


def same_share(config: EngineConfig, share: float | None, own: dict[str, Rope]) -> None:
    """Raise where an override states another share of a head than the config: files differ in what they read."""
    if share is not None and any(share != rope.get("partial_rotary_factor", 1.0) for rope in own.values()):
        raise NotReadError(f"what SGLang's code for {config.name} makes of partial_rotary_factor in an override")


def longest(rope: Rope, declared: int | None, flags: Flags, rules: Rules) -> int | None:
    """The longest sequence; raises where SGLang would not start."""
    derived, factor = declared, float(rope.get("factor") or 1.0)  # by kind of layer it stands in none of them
    if factor != 1 and ORIGINAL not in rope and rope.get("rope_type") != "llama3" and declared is not None:
        derived = int(declared * factor)
        rules.add(f"factor {factor:g} lengthens the {declared} declared positions to {derived}", LENGTH, True)
    asked = flags.get("--context-length")
    refuse_longer(flags, "--context-length", derived, "SGLang", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")
    return derived if asked is None else int(asked)


def rotation(
    config: EngineConfig, facts: SGLangModel, rope: Rope, declared: int | None, rules: Rules
) -> BaseAndScaling:
    """Base and scaling of one kind of layer."""
    base = rope.get("rope_theta")
    if base is None:
        base = facts.theta
        rules.add(f"no rope_theta in the override: base {base:g}", "sglang/srt/models")
    base = float(int(base)) if facts.whole else float(base)
    scheme = rope.get("rope_type") or rope.get("type")
    if scheme is None:
        raise ValueError("rope_parameters must state rope_type, without which SGLang does not start; add it")
    if facts.reads != YARN and scheme not in ("default", "yarn"):
        rules.add(f"{scheme} becomes YaRN, whatever rope_type says", "sglang/srt/models/deepseek_v2.py")
        scheme = "yarn"
    if scheme != "default" and not facts.scaled:
        rules.add(f"{scheme} is not read for this model: only the base is", "sglang/srt/models")
        return base, None
    if scheme in DEFAULTED and (missing := [key for key in DEFAULTED[scheme] if rope.get(key) is None]):
        rope = {**rope, **{key: 1.0 if key == "factor" else declared for key in missing}}
        text = f"{' and '.join(missing)} missing: 1 and the declared length are taken, with a warning"
        rules.add(text, f"{FACTORY}, _get_rope_param")
    if scheme == "yarn":
        if rope.get("attention_factor") is not None:
            rules.add("attention_factor is not read (attn_factor multiplies instead)", FACTORY, True)
        rules.unread(rope, others((*facts.reads, "attention_factor")), FACTORY)
        scaling = yarn(rope, facts.reads)
        both = rope.get("mscale") is not None and rope.get("mscale_all_dim") is not None
        if not both and facts.reads == YARN:
            scaling = replace(scaling, mscale=None, mscale_all_dim=None)
        if extra := rope.get("attn_factor"):
            scaling = replace(scaling, attention=scaling.attention_factor() * float(extra))
        return base, scaling
    if scheme == "longrope":
        original = int(need(rope, ORIGINAL))
        rules.add("LongRoPE: the longest position of a batch chooses the factors of all of it", FACTORY)
        short, long = (tuple(float(v) for v in need(rope, name)) for name in ("short_factor", "long_factor"))
        factor = (declared or original) / original
        return base, LongRoPE(short, long, original, factor, rope.get("long_mscale"), rope.get("short_mscale"))
    if scheme == "dynamic":
        factor = float(need(rope, "factor"))
        stretch = float(rope["alpha"]) if "alpha" in rope else factor * factor - (factor - 1)
        rules.add(f"dynamic is static: NTK factor {stretch:g} at every length", FACTORY, True)
        return base, NTK(stretch)
    if scheme == "proportional":
        return base, share_alone(rope, rules, "sglang/srt/models/gemma4_causal.py")
    if scheme not in PLAIN:
        raise ValueError(f"rope_type {scheme!r} is none that SGLang {SGLang.version} knows")
    return base, PLAIN[scheme](rope)


def written(rope: Rope, config: EngineConfig, length: int) -> Rope:
    """The dictionary for SGLang: dynamic NTK by the factor whose static stretch is that of ``length``."""
    if rope["rope_type"] != "dynamic":
        return rope
    stretch = float(rope["factor"]) * length / (config.model.max_position or length) - (float(rope["factor"]) - 1)
    return {**rope, "factor": (1 + math.sqrt(4 * stretch - 3)) / 2}
