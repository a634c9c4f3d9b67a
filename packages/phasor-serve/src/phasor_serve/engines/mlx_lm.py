"""mlx-lm 0.32.2: config.json as it stands, read by one class of arguments per model type."""

import math
from dataclasses import dataclass, replace

from phasor import ModelRotary
from phasor.scaling import DynamicNTK, Scaling

from .base import Engine, EngineReading, Flags, NotReadError, Rules, Settings, facts_of, register_engine
from .engine_config import ORIGINAL, EngineConfig
from .rope import PLAIN, BaseAndScaling, Rope, always, need, rotated, yarn
from .serving import GROUPS, MODEL, Reserve, Serving
from .transformers import rewritten

ROPES = "mlx_lm/models/rope_utils.py: initialize_rope"


@dataclass(frozen=True)
class MlxModel:
    """What the arguments of a model type hold: the base without rope_theta, and which dictionaries are read.

    ``scaling``: rope_scaling is passed on; ``parameters``: rope_parameters are read as well; ``kinds``: these alone,
    by kind of layer where the model has several; ``local``: windowed layers have a base of their own, else that of the
    others, without scaling.
    """

    theta: float | None = None
    scaling: bool = True
    parameters: bool = False
    kinds: bool = False
    local: bool = True


MODELS = facts_of("mlx-lm", MlxModel)


class MlxLm(Engine):
    name = "mlx-lm"
    version = "0.32.2"
    serving = Serving(
        command=f"mlx_lm.server --model {MODEL}",
        caches=GROUPS,  # mlx_lm/models/cache.py: QuantizedKVCache, groups of 64
        cache_flags=lambda dtype: {"--kv-bits": dtype.removeprefix("q")},
        reserve=lambda memory, devices: Reserve(
            0.75 * memory,
            "about 3/4 of the memory may be wired (macOS, not read back); "
            "--prefill-step-size 2048 [mlx_lm/generate.py]",
            2048,
        ),
        window_lost="mlx_lm/models/llama.py: a window only where layer_types name one",  # phi3.py has none
    )

    def read(self, config: EngineConfig, flags: Flags) -> EngineReading:
        if config.name not in MODELS:
            raise NotReadError(f"what mlx-lm {self.version} reads of the config of {config.name}")
        rules = Rules()
        model = rotated(config, lambda kind: rotation(config, MODELS[config.name], kind, rules))
        rules.add("no length is refused", "mlx_lm/generate.py")
        return self.reading(model, None, rules, "mlx_lm/models/deepseek_v3.py")

    def write(self, config: EngineConfig, wanted: ModelRotary, length: int) -> list[Settings]:
        return [Settings(config=rewritten(config, wanted, length))]


register_engine(MlxLm())


def rotation(config: EngineConfig, facts: MlxModel, kind: str, rules: Rules) -> BaseAndScaling:
    """Base and scaling of one kind of layer."""
    text = config.text
    if facts.kinds:
        stated = text.get("rope_parameters") or {}
        own: Rope = dict((stated.get(kind) if kind else stated) or {})
        return float(own.get("rope_theta", facts.theta or 10_000.0)), scaling_of(
            config, own.get("rope_type", "default"), own, rules
        )
    rope: Rope = dict(text.get("rope_scaling") or {})
    parameters = text.get("rope_parameters") or {}
    base = text.get("rope_theta") or (parameters.get("rope_theta") if facts.parameters else None)
    if facts.parameters and not rope:
        rope = dict(parameters)
    elif parameters:
        rules.add("rope_parameters are not read for this model: rope_theta and rope_scaling are", "mlx_lm/models", True)
    if "sliding" in kind and facts.local:
        return float(text.get("rope_local_base_freq") or 10_000.0), None
    base = facts.theta if base is None else base
    if base is None:
        raise ValueError("rope_theta is missing, and mlx-lm's class has no default for it; add it")
    scheme = rope.get("type") or rope.get("rope_type") or "default"
    if "sliding" in kind:
        return float(base), None
    if scheme not in ("default", "mrope") and not facts.scaling:
        rules.add("rope_scaling is not read for this model", "mlx_lm/models", True)
        return float(base), None
    return float(base), scaling_of(config, scheme, rope, rules)


def scaling_of(config: EngineConfig, scheme: str, rope: Rope, rules: Rules) -> Scaling | None:
    declared = config.model.max_position
    if scheme in ("default", "mrope"):
        return None
    if scheme in ("yarn", "deepseek_yarn"):
        rules.unread(rope, ("attention_factor", "truncate"), ROPES, True)
        scaling = yarn({ORIGINAL: 4096, **rope}, ("beta_fast", "beta_slow", "mscale_all_dim"))
        mscale, below = float(rope.get("mscale", 1)), float(rope.get("mscale_all_dim", 0))
        grown = [1.0 if scaling.factor <= 1 else 0.1 * m * math.log(scaling.factor) + 1 for m in (mscale, below)]
        return replace(scaling, attention=grown[0] / grown[1])
    if scheme == "dynamic":
        text = "dynamic: each call rotates by the length up to its own end; keys of earlier calls keep their rotation"
        rules.add(text, f"{ROPES}: DynamicNTKScalingRoPE")
        return DynamicNTK(float(need(rope, "factor")), int(declared or 2048))
    if scheme == "longrope":
        rules.add("LongRoPE: the long factors at every length", ROPES, True)
        return always(True, rope, declared)
    if scheme not in PLAIN:
        raise ValueError(f"rope_scaling.type {scheme!r} is none that mlx-lm {MlxLm.version} knows")
    return PLAIN[scheme](rope)
