"""TensorRT-LLM 1.2.0rc2, its PyTorch backend: config.json by way of transformers 4.56, and tables of cos and sin."""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

from ...models.configs import ModelRotary
from ...rotary.scaling import NTK, Linear, Llama3, Scaling, YaRN
from ...rotary.scaling.yarn import magnitude
from .base import CannotSayError, Engine, Flags, Reading, Rule, Settings
from .engine_config import ORIGINAL, Seen
from .engine_rotation import softmax_rules, turned
from .facts import facts
from .flags import length
from .rope import Rope, always, need
from .transformers import rewritten

PARAMS = "tensorrt_llm/_torch/attention_backend/interface.py: RopeParams.from_config"
FUSED = "tensorrt_llm/_torch/modules/qk_norm_attention.py: compute_yarn_parameters"
ENGINE = "tensorrt_llm/_torch/pyexecutor/model_engine.py: _infer_max_seq_len_from_config"
UNGROWN = ("su", "longrope", "llama3", "yarn")  # types whose factor does not lengthen the declared length
TYPED = ("yarn", "mrope")  # types that models whose code asks for the kind of embedding can name


@dataclass(frozen=True)
class Own:
    """What TensorRT-LLM's code for a model type does; read in ``tensorrt_llm/_torch/models``, not run.

    ``fused``: one kernel norms and turns q and k, by the base alone; ``typed``: the type of the scaling is taken for a
    kind of embedding; ``single``: YaRN's table holds each angle once; ``latent``: twice, as its attention wants it.
    """

    fused: bool = False
    typed: bool = False
    single: bool = False
    latent: bool = False


MODELS = facts("tensorrt-llm", Own)


class TensorRTLLM(Engine):
    name = "tensorrt-llm"
    version = "1.2.0rc2"
    flags: ClassVar = {"--max_seq_len": length}

    def read(self, seen: Seen, flags: Flags) -> Reading:
        if seen.name not in MODELS:
            raise CannotSayError(f"tensorrt-llm: its PyTorch backend has no {seen.name}, or none that is known here")
        if seen.text.get("rope_parameters") and not seen.text.get("rope_theta"):
            raise CannotSayError(
                "tensorrt-llm reads configs by transformers 4.56, which knows rope_theta and rope_scaling, and not "
                "the rope_parameters that this one states"
            )
        rules: list[Rule] = [Rule("what a model's file passes on of config.json", "tensorrt_llm/_torch/models")]
        model = turned(seen, lambda kind: rotation(seen, MODELS[seen.name], kind, rules))
        return Reading(
            engine=self.name, version=self.version, model=model, length=longest(seen, flags, rules),
            rules=(*dict.fromkeys(rules), *softmax_rules(model, "tensorrt_llm/_torch/modules/attention.py: MLA")),
        )  # fmt: skip

    def write(self, seen: Seen, wanted: ModelRotary, length: int) -> list[Settings]:
        flags = {"--max_seq_len": length}
        if wanted.layers == seen.model.layers and length <= (seen.model.max_position or 0):
            return [Settings(flags=flags)]
        return [Settings(flags=flags, config=in_old_words(rewritten(seen, wanted, length), seen))]


def in_old_words(config: dict[str, Any], seen: Seen) -> dict[str, Any]:
    """A config with rope_theta and rope_scaling in the place of the rope_parameters that were added to it."""
    made = copy.deepcopy(config)
    text = made
    for key in seen.path.split(".") if seen.path else ():
        text = text[key]
    if "rope_parameters" in text and "rope_parameters" not in seen.text:
        rope = text.pop("rope_parameters")
        text["rope_theta"] = rope.pop("rope_theta", None) or text.get("rope_theta")
        text["rope_scaling"] = None if rope.get("rope_type") == "default" else rope
    return made


def rotation(seen: Seen, own: Own, kind: str, rules: list[Rule]) -> tuple[float, Scaling | None]:
    """Base and scaling of one kind of layer."""
    spec, rope = seen.spec_of(kind), dict(seen.text.get("rope_scaling") or {})
    assert spec is not None
    if "sliding" in kind:
        return spec.base, None
    base = float(seen.text.get("rope_theta") or spec.base)
    scheme = rope.get("type") or rope.get("rope_type")
    if not rope or scheme is None:
        return base, None
    if own.typed and scheme not in TYPED:
        raise ValueError(f"rope_scaling.type {scheme!r} stops TensorRT-LLM: it is none of its kinds of embedding")
    if own.fused:
        rules.append(Rule(f"rope_scaling ({scheme}) is not read: the fused kernel turns by the base", FUSED, True))
        return base, None
    return base, scaling_of(seen, own, scheme, rope, rules)


def scaling_of(seen: Seen, own: Own, scheme: str, rope: Rope, rules: list[Rule]) -> Scaling | None:
    original = int(seen.text.get(ORIGINAL) or rope.get(ORIGINAL) or 1024)
    factor = float(rope.get("factor", 1.0))
    if scheme == "yarn":
        if not own.single and not own.latent:
            raise CannotSayError(
                "tensorrt-llm's table for YaRN holds every angle twice, and its attention reads it at single width: "
                "positions 2k and 2k + 1 would both turn as k"
            )
        for key in ("attention_factor", "truncate", *(("mscale", "mscale_all_dim") if own.single else ())):
            if rope.get(key) is not None:
                rules.append(Rule(f"{key} is not read", PARAMS, True))
        above, below = (1.0, 0.0) if own.single else (rope.get("mscale", 1.0), rope.get("mscale_all_dim", 0.0))
        return YaRN(
            factor=float(need(rope, "factor")), original_max_position=original, mscale_all_dim=below or None,
            beta_fast=float(rope.get("beta_fast", 32)), beta_slow=float(rope.get("beta_slow", 1)),
            attention=magnitude(factor, above) / magnitude(factor, below),
        )  # fmt: skip
    if scheme == "llama3":
        low, high = float(rope.get("low_freq_factor", 1.0)), float(rope.get("high_freq_factor", 4.0))
        return Llama3(factor, low_freq_factor=low, high_freq_factor=high, original_max_position=original)
    if scheme == "longrope":
        rules.append(Rule("LongRoPE: the long factors at every length", PARAMS, True))
        return always(True, {**rope, ORIGINAL: original}, seen.model.max_position)
    if scheme == "dynamic":
        alpha = float(rope.get("alpha", 1.0))
        rules.append(Rule(f"dynamic: factor is not read, alpha is: {alpha:g}", PARAMS, True))
        return NTK(alpha) if alpha != 1 else None
    if scheme in ("linear", "none", "mrope"):
        return Linear(factor) if factor != 1 else None
    raise ValueError(f"rope_scaling.type {scheme!r} is none that TensorRT-LLM {TensorRTLLM.version} knows")


def longest(seen: Seen, flags: Flags, rules: list[Rule]) -> int | None:
    """The longest sequence; one that was asked for and is longer is cut, with a warning."""
    derived, rope = seen.model.max_position, seen.text.get("rope_scaling") or {}
    scheme = rope.get("type", rope.get("rope_type"))
    if derived is not None and rope and scheme not in UNGROWN:
        derived = int(derived * float(rope.get("factor", 1.0)))
    asked = flags.get("--max_seq_len")
    if asked is None or derived is None:
        return derived if asked is None else int(asked)
    if asked > derived:
        rules.append(Rule(f"--max_seq_len {asked} is cut to {derived}, with a warning", ENGINE))
    return min(int(asked), derived)
