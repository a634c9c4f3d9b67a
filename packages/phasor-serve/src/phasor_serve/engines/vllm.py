"""vLLM 0.33.0: transformers' config classes, --hf-overrides on top of them, and rotations of its own."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from phasor import ModelRotary
from phasor.scaling import NTK, Scaling

from .base import CannotSayError, Engine, EngineReading, Flags, Rules, Settings, facts_of, register_engine
from .engine_config import ORIGINAL, ROPES, EngineConfig, walk
from .flags import json_object, length
from .rope import (
    PLAIN,
    YARN_KEYS,
    BaseAndScaling,
    Rope,
    always,
    need,
    others,
    refuse_longer,
    rotated,
    share_alone,
    with_mscales,
    yarn,
)
from .serving import GIB, MODEL, Reserve, Serving
from .support import passes
from .transformers import as_transformers

LENGTHENED = ("default", "linear", "ntk", "dynamic", "proportional")  # types whose factor lengthens the model
BESIDE = ("rope_theta", "partial_rotary_factor")  # which reach rope_parameters that do not hold them
NO_SHARE = "--hf-overrides partial_rotary_factor cuts the rotary part of latent attention, which no spec here can say"
VERSION = "0.33.0"
FILES = "vllm/model_executor/layers/rotary_embedding"


@dataclass(frozen=True)
class VllmModel:
    """What vLLM's code for one model type does with rope parameters otherwise than by default.

    - ``theta``: the base of an override that states none (None: it stops with an error).
    - ``needs``: keys without which it stops; ``reads``: the keys of YaRN that it passes on.
    - ``grown``: a factor of its scaling lengthens the declared length (not of Gemma 3).
    - ``far``: M-RoPE's correction range is taken at so many times the original length.
    - ``share``: of the head, which rotates where rope parameters state none; 0: as the config's other keys say.
    """

    theta: float | None = 10_000.0
    needs: tuple[str, ...] = ()
    reads: tuple[str, ...] = tuple(YARN_KEYS)
    far: int = 4
    share: float = 1.0
    grown: bool = True
    note: str = ""


LATENT = VllmModel(reads=("beta_fast", "beta_slow", "mscale", "mscale_all_dim"))


MODELS = facts_of("vllm", VllmModel)


def model_of(config: EngineConfig) -> VllmModel:
    latent = any(spec.trailing for spec in config.model.distinct)
    return LATENT if latent else MODELS.get(config.name, VllmModel())


def written(config: EngineConfig, rope: Rope) -> Rope:
    """The dictionary for vLLM: everything that its code needs, dynamic NTK and M-RoPE's YaRN as it can say them."""
    facts = model_of(config)
    if rope["rope_type"] == "dynamic":
        rope = {**rope, "max_trained_positions": config.model.max_position}
    if rope["rope_type"] == "yarn" and "mrope_section" in rope and facts.far != 1:
        if rope[ORIGINAL] % facts.far:
            raise CannotSayError(
                f"vLLM takes YaRN's range at {facts.far} x a whole original length, not {rope[ORIGINAL]}"
            )
        rope = {**rope, ORIGINAL: rope[ORIGINAL] // facts.far}
    defaults = {"beta_fast": 32.0, "beta_slow": 1.0}
    return {**{key: defaults[key] for key in facts.needs if key in defaults}, **rope}


def overridden(config: EngineConfig, override: dict[str, Any], rules: Rules) -> tuple[dict[str, Rope], int | None]:
    """Rope parameters per kind and the declared length, after --hf-overrides."""
    source = "vllm/config/model.py: _apply_dict_overrides, _update_nested"
    ropes, declared = config.parameters(), config.model.max_position
    text, outside = walk(override, config.inside)
    for name in outside:
        if name in ROPES or name in ("rope_theta", "max_position_embeddings"):
            where = ".".join(config.inside.split("."))
            rules.add(f"--hf-overrides {name} has no effect: the text model reads {where}.{name}", source, True)
    declared = text.get("max_position_embeddings", declared)
    stated = [(name, text[name]) for name in text if name in ROPES]  # the last one stays, or is merged last
    beside = {} if config.inside else {key: text[key] for key in BESIDE if text.get(key) is not None}
    if config.own_share:  # which the class puts into rope_parameters before any override
        beside.pop("partial_rotary_factor", None)
    refuse_unread(config, text, stated, beside)
    for name in BESIDE:
        fills = name in beside and (stated or any(name not in rope for rope in ropes.values()))
        if name in text and not fills:
            rules.add(f"--hf-overrides {name} has no effect: rope_parameters already hold it", source, True)
    if not stated:
        return {kind: {**beside, **rope} for kind, rope in ropes.items()}, declared
    if config.inside:
        for _, parameters in stated:
            ropes = merged(config, parameters, ropes, rules, source)
        return ropes, declared
    rules.add("--hf-overrides rope_parameters replaces the whole dictionary", source, True)
    name, parameters = stated[-1]
    if any(config.kinds):
        if missing := [kind for kind in ropes if kind not in parameters]:
            raise ValueError(f"--hf-overrides rope_parameters must have the key {missing[0]!r}: vLLM reads it by kind")
        return {kind: dict(parameters[kind]) for kind in ropes}, declared
    if name == "rope_scaling":
        parameters = filled(config, {**beside, **parameters}, declared)
    return {kind: dict(parameters) for kind in ropes}, declared


def refuse_unread(config: EngineConfig, text: Rope, stated: Sequence[tuple[str, Any]], beside: Rope) -> None:
    """Raise for overrides with which vLLM stops, and for those that no reading here follows."""
    for name, parameters in stated:
        if not isinstance(parameters, dict):
            said = "null" if parameters is None else repr(parameters)
            raise ValueError(f"--hf-overrides {name} must be a dictionary, got {said}: vLLM loses the base with it")
    if model_of(config) is LATENT and any(
        "partial_rotary_factor" in rope for rope in (beside, *(r for _, r in stated))
    ):
        raise ValueError(NO_SHARE)
    if stated and text.get("partial_rotary_factor") is not None and passes("vllm", config) == "backend":
        raise ValueError("--hf-overrides partial_rotary_factor must stand inside rope_parameters, which it overrides")


def merged(
    config: EngineConfig, parameters: Rope, ropes: dict[str, Rope], rules: Rules, source: str
) -> dict[str, Rope]:
    """A nested text model's rope parameters of each kind, updated key by key by those of an override."""
    if not any(config.kinds):
        return {kind: {**rope, **parameters} for kind, rope in ropes.items()}
    if others := [key for key in parameters if key not in ropes]:
        rules.add(f"rope_parameters.{others[0]} has no effect beside the kinds of layers", source, True)
    return {kind: {**rope, **parameters.get(kind, {})} for kind, rope in ropes.items()}


def filled(config: EngineConfig, rope: Rope, declared: int | None) -> Rope:
    """What transformers adds to a dictionary that is set as ``rope_scaling`` (`standardize_rope_params`)."""
    if "rope_theta" not in rope:
        raise ValueError("rope_scaling.rope_theta is missing: it is set to null, and vLLM stops with a TypeError")
    rope = {"rope_type": rope.get("type", "default"), **rope}
    if rope["rope_type"] in ("llama3", "yarn", "longrope"):
        own = config.text.get(ORIGINAL)
        rope = {ORIGINAL: declared, **rope, **({ORIGINAL: own} if own else {})}
    return rope


def longest(
    config: EngineConfig, ropes: dict[str, Rope], declared: int | None, flags: Flags, rules: Rules
) -> int | None:
    """The longest sequence: --max-model-len, else what it derives; raises where vLLM would not start."""
    source = "vllm/config/model.py: _get_and_verify_max_len"
    derived = declared
    for rope in ropes.values():
        if "rope_type" not in rope:
            raise ValueError("rope_parameters.rope_type is missing: vLLM stops with a KeyError (type is not read here)")
        if rope["rope_type"] in LENGTHENED and model_of(config).grown and derived is not None:
            factor = float(rope.get("factor") or 1.0)
            derived = int((declared or 0) * factor)
            if factor != 1:
                text = (
                    f"{rope['rope_type']} factor {factor:g} lengthens max_position_embeddings {declared} to {derived}"
                )
                rules.add(text, source, True)
    asked = flags.get("--max-model-len")
    if asked is None:
        original = config.text.get(ORIGINAL)
        if any(rope["rope_type"] == "longrope" for rope in ropes.values()) and original:
            rules.add(f"LongRoPE without --max-model-len: {original} positions", source, True)
            return int(original)
        return derived
    refuse_longer(flags, "--max-model-len", derived, "vLLM", "VLLM_ALLOW_LONG_MAX_MODEL_LEN")
    if derived is not None and asked > derived:
        text = f"positions from {declared} on lie outside its tables of cos and sin"
        rules.add(text, f"{FILES}/base.py: _compute_cos_sin_cache")
    return int(asked)


def rotation(
    config: EngineConfig,
    facts: VllmModel,
    kind: str,
    ropes: dict[str, Rope],
    declared: int | None,
    taken: int | None,
    rules: Rules,
) -> BaseAndScaling:
    """Base and scaling of one kind of layer."""
    rope = ropes[kind]
    for key in facts.needs:
        need(rope, key)
    base = rope.get("rope_theta")
    if base is None:
        base = facts.theta
        source = f"vllm/model_executor/models ({config.name})"
        rules.add(f"no rope_theta in the override: base {base:g}", source, True)
    spec = config.spec_of(kind)
    assert spec is not None and base is not None
    scheme = "yarn" if facts.note else rope["rope_type"]
    if scheme == "yarn":
        scaling = yarn(rope, facts.reads)
        rules.unread(rope, others(facts.reads), f"{FILES}/__init__.py: get_rope", True)
        if "mrope_section" in rope and facts.far != 1:
            far = scaling.original_max_position * facts.far
            text = f"M-RoPE takes YaRN's correction range at {far}, {facts.far} times the original length"
            rules.add(text, f"{FILES}/mrope.py: MRotaryEmbedding.__init__", True)
            scaling = replace(scaling, original_max_position=far)
        if facts is LATENT and scaling.attention is None and scaling.mscale is not None:
            scaling = replace(scaling, mscale_all_dim=scaling.mscale_all_dim or 1e-300)
        return float(base), scaling
    if scheme == "longrope":
        return float(base), longrope(rope, declared, taken, rules)
    if scheme == "dynamic":
        return float(base), dynamic(rope, declared, rules)
    if scheme == "proportional":
        return float(base), share_alone(rope, rules, f"{FILES}/gemma4_rope.py", True)
    if scheme == "linear" and not isinstance(rope.get("factor"), float):
        raise ValueError(
            f"rope_parameters.factor must be written as {float(need(rope, 'factor'))}: vLLM cannot read a whole number"
        )
    if scheme not in PLAIN:
        raise ValueError(f"rope_type {scheme!r} is none that vLLM {VERSION} knows")
    return float(base), PLAIN[scheme](rope)


def longrope(rope: Rope, declared: int | None, taken: int | None, rules: Rules) -> Scaling:
    original = int(need(rope, ORIGINAL))
    long = (taken or 0) > original
    text = f"LongRoPE: --max-model-len {taken} chooses the {'long' if long else 'short'} factors for every prompt"
    rules.add(text, f"{FILES}/phi3_long_rope_scaled_rope.py: __init__", True)
    return always(long, rope, declared, rope.get("long_mscale" if long else "short_mscale"))


def dynamic(rope: Rope, declared: int | None, rules: Rules) -> Scaling:
    source = f"{FILES}/dynamic_ntk_scaling_rope.py"
    if "alpha" in rope:
        return NTK(float(rope["alpha"]))
    factor, trained = float(need(rope, "factor")), rope.get("max_trained_positions") or declared
    stretch = factor * (declared or 1) / (trained or 1) - (factor - 1)
    rules.add(f"dynamic is static: NTK factor {stretch:g} at every length", source, True)
    return NTK(stretch)


def reserve(memory: int, devices: int) -> Reserve:
    tokens = 8192 if memory >= 70 * GIB else 2048
    source = f"--gpu-memory-utilization 0.92, batches of {tokens:,} tokens, graphs [vllm/config/cache.py, arg_utils.py]"
    return Reserve(0.92 * memory, source, tokens, 0.2 * GIB, 2 * GIB)


class Vllm(Engine):
    name = "vllm"
    version = VERSION
    flags: ClassVar = {"--hf-overrides": json_object, "--max-model-len": length, "VLLM_ALLOW_LONG_MAX_MODEL_LEN": str}
    gone: ClassVar = {
        "--rope-scaling": "--hf-overrides '{\"rope_parameters\": {…}}'",
        "--rope-theta": "--hf-overrides '{\"rope_parameters\": {…}}'",
    }
    serving = Serving(
        command=f"vllm serve {MODEL}",
        devices="--tensor-parallel-size",
        draft={"--speculative-config": {"model": "DRAFT", "method": "draft_model", "num_speculative_tokens": 5}},
        caches={"fp8": 8.0},  # vllm/config/cache.py: CacheDType
        cache_flags=lambda dtype: {"--kv-cache-dtype": dtype},
        page=16,
        reserve=reserve,
        window_kept="vllm/model_executor/layers/attention/attention.py: cache_config.sliding_window",
        in_full="windowed layers are counted in full: their pages are freed behind the window, and used again",
        index_in_8_bits="vllm/model_executor/models/deepseek_v2.py: DeepseekV32IndexerCache",
    )

    def read(self, config: EngineConfig, flags: Flags) -> EngineReading:
        rules = Rules()
        override = flags.get("--hf-overrides") or {}
        ropes, declared = overridden(config, override, rules)
        taken = longest(config, ropes, declared, flags, rules)
        facts = model_of(config)
        if passes(self.name, config) == "backend" and not config.path:
            model = as_transformers(config, ropes, declared, rules, "vllm/model_executor/models/registry.py")
        else:
            own = lambda kind: rotation(config, facts, kind, ropes, declared, taken, rules)  # noqa: E731
            model = rotated(config, own, {} if facts.share == 0 or facts.note else ropes, facts.share)
        told = replace(model, max_position=declared)
        return self.reading(told, taken, rules, "vllm/model_executor/models/deepseek_v2.py")

    def write(self, config: EngineConfig, wanted: ModelRotary, length: int) -> list[Settings]:
        plain = {kind: written(config, rope) for kind, rope in config.parameters(wanted).items()}
        transformers_runs = passes(self.name, config) == "backend" and not config.path
        ropes = plain if transformers_runs else {kind: with_mscales(rope) for kind, rope in plain.items()}
        text: dict[str, Any] = {}
        if wanted.layers != config.model.layers or ropes != plain:
            text["rope_parameters"] = ropes if any(config.kinds) else ropes[""]
        kinds = {rope["rope_type"] for rope in ropes.values()}
        stretch = max([float(r.get("factor", 1.0)) for r in ropes.values() if r["rope_type"] in LENGTHENED], default=1)
        stretch = stretch if model_of(config).grown else 1.0
        if (config.model.max_position or length) * stretch < length or "dynamic" in kinds:
            text["max_position_embeddings"] = length
        return [
            Settings(flags={**({"--hf-overrides": config.nested(text)} if text else {}), "--max-model-len": length})
        ]


register_engine(Vllm())
