"""GGUF: the keys that llama.cpp's converter writes for a config, without the name of the architecture before them."""

from dataclasses import dataclass
from typing import Any

from ..scaling import Linear, Llama3, LongRoPE, Proportional, YaRN
from ..spec import RotarySpec
from .base import CannotSayError
from .seen import Seen

CONVERTER = "llama.cpp conversion/base.py: TextModel.set_gguf_parameters"
BASE, BASE_SWA, WIDTH = "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count"
TYPE, FACTOR, ATTENTION = "rope.scaling.type", "rope.scaling.factor", "rope.scaling.attn_factor"
ORIGINAL, LOG = "rope.scaling.original_context_length", "rope.scaling.yarn_log_multiplier"
LENGTH = "context_length"


@dataclass(frozen=True)
class Arch:
    """The name of an architecture in GGUF, and what its sliding layers do.

    ``sliding``: ``""``: as the others; ``"own"``: they have their own base and no scaling; ``"trained"``: base and
    scaling of the file, which no flag changes. ``unheard``: keys of YaRN that its graph does not take from the file.
    """

    name: str
    sliding: str = ""


ARCHS: dict[str, Arch] = {
    **{name: Arch("llama") for name in ("llama", "mistral", "mixtral", "smollm3")},
    **{name: Arch(name) for name in ("qwen2", "qwen3", "phi3", "gemma", "gemma2", "granite", "glm4", "starcoder2")},
    "qwen2_moe": Arch("qwen2moe"), "qwen3_moe": Arch("qwen3moe"), "qwen2_vl": Arch("qwen2vl"),
    "qwen2_vl_text": Arch("qwen2vl"), "qwen2_5_vl_text": Arch("qwen2vl"), "qwen3_vl_text": Arch("qwen3vl"),
    "qwen3_vl_moe_text": Arch("qwen3vlmoe"), "qwen3_next": Arch("qwen3next"), "qwen3_5_text": Arch("qwen35"),
    "qwen3_5_moe_text": Arch("qwen35moe"), "phi": Arch("phi2"), "phimoe": Arch("phimoe"),
    "gemma3_text": Arch("gemma3", "own"), "gpt_oss": Arch("gpt-oss", "trained"),
    "exaone4": Arch("exaone4", "trained"), "cohere2": Arch("cohere2", "trained"), "llama4_text": Arch("llama4"),
    "deepseek_v2": Arch("deepseek2"), "deepseek_v3": Arch("deepseek2"), "kimi_k2": Arch("deepseek2"),
    "glm4_moe": Arch("glm4moe"), "olmo2": Arch("olmo2"), "minicpm3": Arch("minicpm3"), "hunyuan_v1_dense":
    Arch("hunyuan-dense"), "minimax_m2": Arch("minimax-m2"), "gemma4_text": Arch("gemma4", "own"),
}  # fmt: skip


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


def arch_of(seen: Seen) -> Arch:
    found = ARCHS.get(str(seen.text.get("model_type") or seen.model.model_type)) or ARCHS.get(seen.model.model_type)
    if found is None:
        raise CannotSayError(f"llama.cpp: how it converts {seen.model.model_type} is not known here")
    return found


def global_spec(seen: Seen) -> RotarySpec:
    """The rotation that the file's own keys speak of: that of the layers with full attention, else of the first."""
    pairs = zip(seen.model.layer_types, seen.model.layers, strict=True)
    full = [spec for word, spec in pairs if spec is not None and "sliding" not in word]
    return (full or list(seen.model.distinct))[0]


def converted(seen: Seen) -> Metadata:
    """What the converter writes about positions, in the version named by `llama_cpp`."""
    arch, spec = arch_of(seen), global_spec(seen)
    scaling = spec.scaling
    keys: dict[str, Any] = {LENGTH: seen.model.max_position or 0, BASE: spec.base, WIDTH: spec.rotary_dim}
    keys = {key: value for key, value in keys.items() if value}
    sliding = [s for word, s in zip(seen.model.layer_types, seen.model.layers, strict=True) if "sliding" in word and s]
    if arch.sliding == "own" and sliding:
        keys[BASE_SWA] = sliding[0].base
    if isinstance(scaling, Linear):
        keys |= {TYPE: "linear", FACTOR: scaling.factor}
    elif isinstance(scaling, YaRN):
        keys |= {TYPE: "yarn", FACTOR: scaling.factor, ORIGINAL: scaling.original_max_position}
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
