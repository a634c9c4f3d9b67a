"""ExLlamaV3 1.6.5: config.json read by one class per architecture, and one class of rotations; no overrides."""

from dataclasses import dataclass, replace
from typing import ClassVar

from phasor import ModelRotary
from phasor.scaling import Scaling, YaRN

from .base import CannotSayError, Engine, EngineReading, Flags, NotReadError, Rules, Settings, facts_of, register_engine
from .engine_config import ORIGINAL, EngineConfig
from .flags import length
from .rope import PLAIN, BaseAndScaling, Rope, always, need, rotated, share_alone
from .serving import GIB, GROUPS, Reserve, Serving
from .transformers import rewritten

ROPES = "exllamav3/util/rope.py: RoPE"
OLMO = "exllamav3/architecture/olmo3.py: Olmo3Config"
PAGE = 256  # tokens
DEFAULTS: dict[str, Rope] = {
    "linear": {"factor": 1.0},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, ORIGINAL: 8192},
}  # fmt: skip


@dataclass(frozen=True)
class ExLlamaV3Model:
    """What ExLlamaV3's class for a model type does.

    ``theta``: the base without rope_theta; ``local``: the base of windowed layers, whatever the config says (None: that
    of the others); ``kinds``: rope parameters are read by kind of layer; ``folds``: cos and sin get DeepSeek's ratio of
    two factors, and the softmax the square of the second; ``rings``: windowed layers keep their window alone;
    ``plain``: windowed layers have the base alone, and only where the config states layer_types.
    """

    theta: float = 10_000.0
    local: float | None = None
    kinds: bool = False
    folds: bool = False
    rings: bool = False
    plain: bool = False


MODELS = facts_of("exllamav3", ExLlamaV3Model)


class ExLlamaV3(Engine):
    name = "exllamav3"
    version = "1.6.5"
    flags: ClassVar = {"-cs": length, "--cache_size": length}
    serving = Serving(
        caches=GROUPS,  # exllamav3/cache/quant.py: CacheLayer_quant
        cache_flags=lambda dtype: {"-cq": dtype.removeprefix("q")},
        page=PAGE,
        reserve=lambda memory, devices: Reserve(
            memory, "passes of 2,048 tokens; no reserve is documented", 2048, 0.2 * GIB, GIB
        ),
    )

    def read(self, config: EngineConfig, flags: Flags) -> EngineReading:
        if config.name not in MODELS:
            raise NotReadError(f"that exllamav3 {self.version} has a class for {config.name}, and what it reads")
        groups = [config.text.get(key) for key in ("n_group", "topk_group")]
        if any(count not in (None, 1) for count in groups):
            raise CannotSayError(f"exllamav3 does not load it: experts are chosen in {groups[0]} groups")
        rules = Rules()
        rules.add("no length is refused; the cache bounds it", "exllamav3/cache/cache.py: Cache")
        facts = MODELS[config.name]
        ropes = {kind: {**config.text, **parameters(config, kind)} for kind in config.kinds}
        model = rotated(config, lambda kind: rotation(config, facts, kind, rules), ropes)
        taken = flags.get("--cache_size", flags.get("-cs"))
        if taken is not None and taken % PAGE:
            raise ValueError(f"--cache_size must be a multiple of {PAGE}, its page, got {taken}")
        model = replace(model, softmax_factor=softmax(config, model))
        return self.reading(model, taken, rules, "exllamav3/architecture/deepseek_v3.py", run=True)

    def write(self, config: EngineConfig, wanted: ModelRotary, length: int) -> list[Settings]:
        flags = {"--cache_size": -(-length // PAGE) * PAGE}
        untold = MODELS.get(config.name, ExLlamaV3Model()).plain and not config.text.get("layer_types")
        if wanted.layers == config.model.layers and not untold:
            return [Settings(flags=flags)]
        written = rewritten(config, wanted, length)
        if untold:
            written["layer_types"] = list(config.model.layer_types)
        return [Settings(flags=flags, config=written)]


register_engine(ExLlamaV3())


def dictionary(config: EngineConfig, kind: str) -> Rope:
    """rope_scaling, else rope_parameters: the first that is a dictionary, even an empty one."""
    stated = [config.text.get(name) for name in ("rope_scaling", "rope_parameters")]
    rope: Rope = dict(next((one for one in stated if isinstance(one, dict)), {}))
    return dict(rope.get(kind) or {}) if MODELS[config.name].kinds else rope


def parameters(config: EngineConfig, kind: str) -> Rope:
    """Where base and share stand that are not beside the dictionary: in rope_parameters, never in rope_scaling."""
    stated = config.text.get("rope_parameters")
    return dictionary(config, kind) if MODELS[config.name].kinds else stated if isinstance(stated, dict) else {}


def rotation(config: EngineConfig, facts: ExLlamaV3Model, kind: str, rules: Rules) -> BaseAndScaling:
    """Base and scaling of one kind of layer."""
    rope = dictionary(config, kind)
    if "sliding" in kind and facts.local is not None and not facts.kinds:
        stated = config.text.get("rope_local_base_freq")
        if stated not in (None, facts.local):
            rules.add(f"rope_local_base_freq is not read: {facts.local:g}", "exllamav3/architecture", True)
        return facts.local, None
    default = facts.local if "sliding" in kind and facts.local is not None else facts.theta
    base = (None if facts.kinds else config.text.get("rope_theta")) or parameters(config, kind).get("rope_theta")
    if base is None:
        rules.add(f"no rope_theta: base {default:g}", "exllamav3/architecture", True)
        base = default
    scheme = rope.get("rope_type") or rope.get("type") or "default"
    if "sliding" in kind and facts.plain:
        if config.text.get("layer_types"):
            return float(base), None
        rules.add("no layer_types: no layer has a window, and all are scaled", OLMO, True)
    return float(base), scaling_of(config, scheme, rope, rules)


def scaling_of(config: EngineConfig, scheme: str, rope: Rope, rules: Rules) -> Scaling | None:
    declared = config.text.get("max_position_embeddings")
    if scheme in ("default", "mrope"):
        return None
    if scheme == "proportional":
        return share_alone(rope, rules, "exllamav3/architecture/gemma4.py", True)
    if scheme in DEFAULTS:
        return PLAIN[scheme]({**DEFAULTS[scheme], **rope})
    if scheme == "yarn":
        return yarn(config, rope, declared, rules)
    if scheme in ("longrope", "su"):
        original = int(rope.get(ORIGINAL) or config.text[ORIGINAL])
        side = "long" if (declared or 0) > original else "short"
        rules.add(f"LongRoPE: the {side} factors at every length", ROPES, True)
        return always(side == "long", {**rope, ORIGINAL: original}, declared)
    raise ValueError(f"rope_type {scheme!r} is none that ExLlamaV3 {ExLlamaV3.version} knows")


def yarn(config: EngineConfig, rope: Rope, declared: int | None, rules: Rules) -> YaRN:
    """YaRN by the ratio of the two lengths, with the factor on cos and sin that it makes of it."""
    if declared is None:
        raise ValueError("max_position_embeddings is missing, and ExLlamaV3's YaRN needs it; add it")
    original = int(need(rope, ORIGINAL))
    factor = declared / original
    if factor != rope.get("factor"):
        text = f"factor {rope.get('factor')} is not read: {declared} / {original} = {factor:g}"
        rules.add(text, ROPES, True)
    if factor < 1:
        raise CannotSayError(f"exllamav3: a YaRN factor of {factor:g}, max_position_embeddings / {ORIGINAL}, below 1")
    scaling = YaRN(
        factor=factor, original_max_position=original, beta_fast=float(rope.get("beta_fast", 32)),
        beta_slow=float(rope.get("beta_slow", 1)), truncate=bool(rope.get("truncate", True)),
        mscale=rope.get("mscale"), mscale_all_dim=rope.get("mscale_all_dim"), attention=rope.get("attention_factor"),
    )  # fmt: skip
    both = scaling.mscale and scaling.mscale_all_dim
    if MODELS[config.name].folds and both:
        return scaling
    if both and scaling.attention is None:
        rules.add("mscale and mscale_all_dim are not read", ROPES, True)
    return replace(scaling, mscale=None, mscale_all_dim=None)


def softmax(config: EngineConfig, model: ModelRotary) -> float:
    """DeepSeek's factor on the softmax: by the factor that the config states, not by the ratio of the lengths."""
    scaling, rope = next(iter(model.distinct)).scaling, dictionary(config, "")
    if not MODELS[config.name].folds or not isinstance(scaling, YaRN) or not rope.get("mscale_all_dim"):
        return 1.0
    stated = max(float(need(rope, "factor")), 1.0)
    return replace(scaling, factor=stated, mscale_all_dim=rope["mscale_all_dim"]).softmax_factor()
