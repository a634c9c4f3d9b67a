"""GGUF: the keys that llama.cpp's converter writes for a config, without the name of the architecture before them."""

from dataclasses import dataclass
from typing import Any

from phasor import RotarySpec
from phasor.scaling import Linear, Llama3, LongRoPE, Proportional, YaRN

from .base import CannotSayError, NotReadError, facts_of
from .engine_config import EngineConfig

CONVERTER = "llama.cpp conversion/base.py: TextModel.set_gguf_parameters"
BASE, BASE_SWA, WIDTH = "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count"
TYPE, FACTOR, ATTENTION = "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor"
ORIGINAL, LOG = "rope.scaling.original_context_length", "rope.scaling.yarn_log_multiplier"
LENGTH = "context_length"
UNREAD = {  # of YaRN: written by the converter, and read for none of the architectures that were run
    "beta_fast": "rope.scaling.yarn_beta_fast", "beta_slow": "rope.scaling.yarn_beta_slow",
    "attention_factor": "rope.scaling.yarn_attn_factor",
}  # fmt: skip


@dataclass(frozen=True)
class Arch:
    """The name of an architecture in GGUF, and what its sliding layers do.

    ``sliding``: ``""``: as the others; ``"own"``: they have their own base and no scaling; ``"trained"``: base and
    scaling of the file, which no flag changes; ``"plain"``: the base of the others, and no scaling.
    """

    name: str
    sliding: str = ""


ARCHS = facts_of("llama.cpp", Arch)


@dataclass(frozen=True)
class Metadata:
    """Keys of a GGUF file without the architecture's name, and the divisors of frequencies that it holds as tensors.

    ``freqs``: ``rope_freqs.weight`` (Llama 3); ``long``, ``short``: ``rope_factors_*.weight`` (Phi-3).
    """

    arch: Arch
    keys: dict[str, Any]
    freqs: tuple[float, ...] = ()
    long: tuple[float, ...] = ()
    short: tuple[float, ...] = ()


def arch_of(config: EngineConfig) -> Arch:
    arch = ARCHS.get(config.name) or ARCHS.get(config.model.model_type)
    if arch is None:
        raise NotReadError(f"how llama.cpp converts {config.model.model_type}")
    return arch


def global_spec(config: EngineConfig) -> RotarySpec:
    """The rotation that the file's own keys speak of: that of the layers with full attention, else of the first."""
    pairs = zip(config.model.layer_types, config.model.layers, strict=True)
    full = [spec for word, spec in pairs if spec is not None and "sliding" not in word]
    return (full or list(config.model.distinct))[0]


def converted(config: EngineConfig) -> Metadata:
    """What the converter writes about positions, in the version named by `llama_cpp`."""
    arch, spec = arch_of(config), global_spec(config)
    scaling = spec.scaling
    keys: dict[str, Any] = {LENGTH: config.model.max_position or 0, BASE: float(spec.base), WIDTH: spec.rotary_dim}
    keys = {key: value for key, value in keys.items() if value}
    sliding = [
        s for word, s in zip(config.model.layer_types, config.model.layers, strict=True) if "sliding" in word and s
    ]
    if arch.sliding == "own" and sliding:
        keys[BASE_SWA] = float(sliding[0].base)
    if isinstance(scaling, Linear):
        keys |= {TYPE: "linear", FACTOR: float(scaling.factor)}
    elif isinstance(scaling, YaRN):
        keys |= {TYPE: "yarn", FACTOR: float(scaling.factor), ORIGINAL: scaling.original_max_position}
        keys |= {name: float(config.rope[key]) for key, name in UNREAD.items() if config.rope.get(key) is not None}
        if arch.name == "deepseek2" and scaling.mscale_all_dim:
            keys[LOG] = 0.1 * scaling.mscale_all_dim
    elif isinstance(scaling, LongRoPE):
        stated = scaling.attention_factor(scaling.original_max_position + 1)
        keys |= {TYPE: "longrope", ORIGINAL: scaling.original_max_position, ATTENTION: stated}
        return Metadata(arch, keys, long=scaling.long_factor, short=scaling.short_factor)
    elif isinstance(scaling, Llama3):
        plain = spec.replace(scaling=None).inv_freq()
        return Metadata(arch, keys, freqs=tuple((plain / spec.inv_freq()).tolist()))
    elif isinstance(scaling, Proportional):
        plain = spec.replace(scaling=None).inv_freq()
        kept = spec.inv_freq()
        return Metadata(arch, keys, freqs=tuple(1.0 if k else 1e30 for k, _ in zip(kept.tolist(), plain, strict=True)))
    elif scaling is not None:
        raise CannotSayError(f"llama.cpp's converter has no word for {scaling.name} scaling")
    return Metadata(arch, keys)
