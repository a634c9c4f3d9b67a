"""TensorRT-LLM 1.2.0rc2, its PyTorch backend: config.json by way of transformers 4.56, and tables of cos and sin."""

import copy
from dataclasses import dataclass
from typing import Any, ClassVar

from phasor import ModelRotary
from phasor.rotary.scaling.yarn import magnitude
from phasor.scaling import NTK, Linear, Scaling, YaRN

from .base import CannotSayError, Engine, EngineReading, Flags, NotReadError, Rules, Settings, facts_of, register_engine
from .engine_config import ORIGINAL, EngineConfig
from .flags import length
from .rope import BaseAndScaling, Rope, always, llama3, need, rotated
from .serving import GIB, MODEL, Reserve, Serving
from .transformers import rewritten

READS = "transformers 4.56, by which it reads configs"
PARAMS = "tensorrt_llm/_torch/attention_backend/interface.py: RopeParams.from_config"
FUSED = "tensorrt_llm/_torch/modules/qk_norm_attention.py: compute_yarn_parameters"
ENGINE = "tensorrt_llm/_torch/pyexecutor/model_engine.py: _infer_max_seq_len_from_config"
UNGROWN = ("su", "longrope", "llama3", "yarn")  # types whose factor does not lengthen the declared length
TYPED = ("yarn", "mrope")  # types that models whose code asks for the kind of embedding can name


@dataclass(frozen=True)
class TensorRTModel:
    """What TensorRT-LLM's code for a model type does; read in ``tensorrt_llm/_torch/models``, not run.

    ``fused``: one kernel norms and rotates q and k, by the base alone; ``typed``: the type of the scaling is taken for
    a kind of embedding; ``single``: YaRN's table holds each angle once; ``latent``: twice, as its attention wants it;
    ``note``: what it leaves out.
    """

    fused: bool = False
    typed: bool = False
    single: bool = False
    latent: bool = False
    note: str = ""


MODELS = facts_of("tensorrt-llm", TensorRTModel)


class TensorRTLLM(Engine):
    name = "tensorrt-llm"
    version = "1.2.0rc2"
    flags: ClassVar = {"--max_seq_len": length}
    serving = Serving(
        command=f"trtllm-serve {MODEL}",
        devices="--tp_size",
        caches={"fp8": 8.0},  # tensorrt_llm/llmapi/llm_args.py: KvCacheConfig.dtype
        cache_flags=lambda dtype: {"--kv_cache_dtype": dtype},
        page=32,
        reserve=lambda memory, devices: Reserve(
            memory, "free_gpu_memory_fraction 0.9 of what is left [llmapi: KvCacheConfig]", 8192, 0.3 * GIB, GIB, 0.9
        ),
        in_full="windowed layers are kept in full, unless kv_cache_config.max_attention_window names their windows",
    )

    def read(self, config: EngineConfig, flags: Flags) -> EngineReading:
        if config.name not in MODELS:
            raise NotReadError(f"what the PyTorch backend of tensorrt-llm {self.version} makes of {config.name}")
        if config.text.get("rope_parameters") and not config.text.get("rope_theta"):
            raise CannotSayError(
                "tensorrt-llm reads configs by transformers 4.56, which knows rope_theta and rope_scaling, and not "
                "the rope_parameters that this one states"
            )
        rules = Rules()
        rules.add("what a model's file passes on of config.json", "tensorrt_llm/_torch/models")
        if config.text.get("rope_parameters"):
            rules.add("rope_parameters is not read: rope_theta and rope_scaling are", READS, True)
        facts = MODELS[config.name]
        if facts.note:
            rules.add(facts.note, "tensorrt_llm/_torch/models")
        model = rotated(config, lambda kind: rotation(config, facts, kind, rules))
        taken = longest(config, flags, rules)
        return self.reading(model, taken, rules, "tensorrt_llm/_torch/modules/attention.py: MLA")

    def write(self, config: EngineConfig, wanted: ModelRotary, length: int) -> list[Settings]:
        flags = {"--max_seq_len": length}
        changed = in_old_words(rewritten(config, wanted, length), config.path)
        kept = wanted.layers == config.model.layers and length <= (config.model.max_position or 0)
        return [*([Settings(flags=flags)] if kept else []), Settings(flags=flags, config=changed)]


register_engine(TensorRTLLM())


def in_old_words(written: dict[str, Any], path: str) -> dict[str, Any]:
    """A config with rope_theta and rope_scaling in the place of its rope_parameters, if all layers share them.

    >>> in_old_words({"rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}, "")
    {'rope_theta': 500000.0, 'rope_scaling': None}
    """
    changed = copy.deepcopy(written)
    text = changed
    for key in path.split(".") if path else ():
        text = text[key]
    rope = text.get("rope_parameters")
    if isinstance(rope, dict) and rope and not any(isinstance(value, dict) for value in rope.values()):
        del text["rope_parameters"]
        for key in ("rope_theta", "partial_rotary_factor"):
            if (value := rope.pop(key, None)) is not None:
                text[key] = value
        text["rope_scaling"] = None if rope.get("rope_type", rope.get("type", "default")) == "default" else rope
    return changed


def rotation(config: EngineConfig, facts: TensorRTModel, kind: str, rules: Rules) -> BaseAndScaling:
    """Base and scaling of one kind of layer."""
    spec, rope = config.spec_of(kind), dict(config.text.get("rope_scaling") or {})
    assert spec is not None
    if "sliding" in kind:
        return spec.base, None
    base = float(config.text.get("rope_theta") or spec.base)
    scheme = rope.get("type") or rope.get("rope_type")
    if not rope or scheme is None:
        return base, None
    if facts.typed and scheme not in TYPED:
        raise ValueError(f"rope_scaling.type {scheme!r} stops TensorRT-LLM: it is none of its kinds of embedding")
    if facts.fused:
        rules.add(f"rope_scaling ({scheme}) is not read: the fused kernel rotates by the base", FUSED, True)
        return base, None
    return base, scaling_of(config, facts, scheme, rope, rules)


def scaling_of(config: EngineConfig, facts: TensorRTModel, scheme: str, rope: Rope, rules: Rules) -> Scaling | None:
    original = int(config.text.get(ORIGINAL) or rope.get(ORIGINAL) or 1024)
    factor = float(rope.get("factor", 1.0))
    if scheme == "yarn":
        if not facts.single and not facts.latent:
            raise CannotSayError(
                "tensorrt-llm's table for YaRN holds every angle twice, and its attention reads it at single width: "
                "positions 2k and 2k + 1 would both rotate as k"
            )
        unread = ("attention_factor", "truncate", *(("mscale", "mscale_all_dim") if facts.single else ()))
        rules.unread(rope, unread, PARAMS, True)
        above, below = (1.0, 0.0) if facts.single else (rope.get("mscale", 1.0), rope.get("mscale_all_dim", 0.0))
        return YaRN(
            factor=float(need(rope, "factor")), original_max_position=original, mscale_all_dim=below or None,
            beta_fast=float(rope.get("beta_fast", 32)), beta_slow=float(rope.get("beta_slow", 1)),
            attention=magnitude(factor, above) / magnitude(factor, below),
        )  # fmt: skip
    if scheme == "llama3":
        return llama3({"low_freq_factor": 1.0, "high_freq_factor": 4.0, **rope, "factor": factor, ORIGINAL: original})
    if scheme == "longrope":
        rules.add("LongRoPE: the long factors at every length", PARAMS, True)
        return always(True, {**rope, ORIGINAL: original}, config.model.max_position)
    if scheme == "dynamic":
        alpha = float(rope.get("alpha", 1.0))
        rules.add(f"dynamic: factor is not read, alpha is: {alpha:g}", PARAMS, True)
        return NTK(alpha) if alpha != 1 else None
    if scheme in ("linear", "none", "mrope"):
        return Linear(factor) if factor != 1 else None
    raise ValueError(f"rope_scaling.type {scheme!r} is none that TensorRT-LLM {TensorRTLLM.version} knows")


def longest(config: EngineConfig, flags: Flags, rules: Rules) -> int | None:
    """The longest sequence; one that was asked for and is longer is cut, with a warning."""
    derived, rope = config.model.max_position, config.text.get("rope_scaling") or {}
    scheme = rope.get("type", rope.get("rope_type"))
    if derived is not None and rope and scheme not in UNGROWN:
        derived = int(derived * float(rope.get("factor", 1.0)))
    asked = flags.get("--max_seq_len")
    if asked is None or derived is None:
        return derived if asked is None else int(asked)
    if asked > derived:
        rules.add(f"--max_seq_len {asked} is cut to {derived}, with a warning", ENGINE)
    return min(int(asked), derived)
