"""The dictionary ``rope_scaling`` / ``rope_parameters`` -> a scaling scheme, key by key."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..checks import number, whole
from ..scaling import NTK, DynamicNTK, Linear, Llama3, LongRoPE, NTKFixed, Proportional, Scaling, YaRN
from .keys import Keys, agreed, is_list, near

ORIGINAL = "original_max_position_embeddings"
SPELLINGS = {"su": "longrope", "deepseek_yarn": "yarn", "mrope": "default"}


@dataclass(frozen=True)
class Setting:
    """What a scheme may need from outside its own dictionary."""

    model_type: str
    top: Keys
    max_position: int | None
    length_key: str
    nested: bool = False  # the parameters stand under a layer type


def scaling_type(rope: Keys, setting: Setting) -> str:
    """The scheme's name under its usual spelling; ``type`` and ``rope_type`` must mean the same."""
    found = []
    for path, word in rope.found("rope_type", "type"):
        if not isinstance(word, str):
            raise ValueError(f"{path} must be the name of a scaling, got {word!r}")
        name = SPELLINGS.get(word, word)
        if word == "xdrope" and setting.model_type == "hunyuan_vl_text":
            name = "dynamic"
        if name == "yarn" and setting.model_type in ("phi3", "phi4_multimodal") and rope.found("short_factor"):
            name = "longrope"  # Phi-3's first spelling
        if name not in SCHEMES:
            known = [*SCHEMES, *SPELLINGS]
            raise ValueError(f"{path} is {word!r}, which is none of {', '.join(sorted(known))}{near(word, known)}")
        found.append((path, name))
        rope.sources[path] = f"scaling {name}" if name != "default" else "no scaling"
    return agreed(found) or "default"


def read_scaling(name: str, rope: Keys, setting: Setting) -> Scaling | None:
    """The scheme ``name`` with its parameters out of ``rope``."""
    rope.became("no effect on frequencies", "finetuned")
    return SCHEMES[name](rope, setting)


def required(rope: Keys, name: str, scheme: str) -> float:
    value = rope.number(name, above=0)
    if value is None:
        where = rope.places[0][0] or "config "
        raise ValueError(f"{where}{name} is missing: {scheme} scaling needs it; add the value of the checkpoint")
    rope.became(f"{scheme} {name} {value:.10g}", name)
    return value


def original_length(rope: Keys, setting: Setting, scheme: str) -> int:
    """``original_max_position_embeddings``, inside the dictionary or beside it."""
    name = ORIGINAL
    found = [*rope.found(name), *setting.top.found(name)]
    value: Any = agreed(found, lambda p, v: number(p, v, above=0))
    if value is None:
        where = rope.places[0][0]
        raise ValueError(
            f"{where}{name} is missing: {scheme} scaling needs the length the model was first trained with, and "
            "max_position_embeddings may mean either length; add it"
        )
    if value != int(value):
        raise ValueError(f"{found[0][0]} must be a whole number of positions, got {value!r}")
    whole(found[0][0], int(value))
    for keys in (rope, setting.top):
        keys.became(f"original_max_position {int(value)}", name)
    return int(value)


def implicit_factor(rope: Keys, setting: Setting, original: int, scheme: str) -> float:
    factor = rope.number("factor", above=0)
    if factor is not None:
        rope.became(f"{scheme} factor {factor:.10g}", "factor")
        return factor
    if setting.max_position is None:
        raise ValueError(f"{rope.places[0][0]}factor is missing, and so is max_position_embeddings; add one of them")
    rope.sources[f"{rope.places[0][0]}factor"] = f"not in config: max_position_embeddings / {original}"
    return setting.max_position / original


def _default(rope: Keys, setting: Setting) -> None:
    factor = rope.number("factor")
    if factor not in (None, 1):
        raise ValueError(f"{rope.found('factor')[0][0]} is {factor!r} without a scaling; name the scheme in rope_type")
    rope.became("no effect without a scaling", "factor")


def _linear(rope: Keys, setting: Setting) -> Scaling:
    return Linear(required(rope, "factor", "linear"))


def _dynamic(rope: Keys, setting: Setting) -> Scaling:
    if setting.model_type.startswith("hunyuan") and rope.found("alpha"):
        for name in ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"):
            if rope.number(name) is not None:
                rope.became("no effect: alpha fixes the base (HunYuan's DynamicNTKAlpha)", name)
        return NTK(required(rope, "alpha", "ntk"))
    name, length = ORIGINAL, setting.max_position
    if length is None:
        raise ValueError(f"{rope.places[0][0]}rope_type 'dynamic' needs max_position_embeddings; add it")
    agreed([(setting.length_key, length), *rope.found(name), *setting.top.found(name)])
    rope.became("equal to max_position_embeddings, which dynamic scaling uses", name)
    told, use = setting.top.sources.get(setting.length_key, ""), f"original_max_position {length} of dynamic scaling"
    if use not in told:  # a class default is already told
        setting.top.sources[setting.length_key] = f"{told}; {use}" if told else use
    return DynamicNTK(required(rope, "factor", "dynamic"), length)


def _yarn(rope: Keys, setting: Setting) -> Scaling:
    original = original_length(rope, setting, "yarn")
    factor = implicit_factor(rope, setting, original, "yarn")
    given: dict[str, Any] = {}
    for key, name, bound in (
        ("beta_fast", "beta_fast", {"above": 0}),
        ("beta_slow", "beta_slow", {"above": 0}),
        ("mscale", "mscale", {"at_least": 0}),
        ("mscale_all_dim", "mscale_all_dim", {"at_least": 0}),
        ("attention_factor", "attention", {"above": 0}),
    ):
        if (value := rope.number(key, **bound)) is not None:  # type: ignore[arg-type]
            given[name] = value
            rope.became(f"yarn {key} {value:.10g}", key)
    if (truncate := rope.flag("truncate")) is not None:
        if setting.nested and not truncate:
            raise ValueError(
                f"{rope.found('truncate')[0][0]} is false: transformers does not look for truncate under a layer type "
                "and rounds the ends of the ramp. Remove the key to do the same, or describe the layers with RotarySpec"
            )
        given["truncate"] = truncate
        rope.became(f"yarn truncate {truncate}", "truncate")
    if given.get("mscale", 1) not in (0, 1) and not given.get("mscale_all_dim") and "attention" not in given:
        raise ValueError(
            f"{rope.found('mscale')[0][0]} is {given['mscale']!r} without mscale_all_dim: DeepSeek's code and "
            "transformers read that differently; state attention_factor instead"
        )
    return YaRN(factor=factor, original_max_position=original, **given)


def _longrope(rope: Keys, setting: Setting) -> Scaling:
    original = original_length(rope, setting, "longrope")
    factor = implicit_factor(rope, setting, original, "longrope")
    lists = {}
    for name in ("short_factor", "long_factor"):
        values = rope.get(name, check=is_list)
        if values is None:
            where = rope.places[0][0]
            raise ValueError(f"{where}{name} is missing: longrope scaling needs one divisor per pair; add it")
        lists[name] = tuple(values)
        rope.became(f"longrope {name}, {len(values)} values", name)
    attention = rope.number("attention_factor", above=0)
    rope.became("longrope attention factor", "attention_factor")
    long, short = rope.number("long_mscale", above=0), rope.number("short_mscale", above=0)
    if (long is None) != (short is None) or (long is not None and attention is not None):
        raise ValueError(f"{rope.places[0][0]}long_mscale and short_mscale go together, without attention_factor")
    if long is not None:
        rope.became("longrope attention factor beyond the original length", "long_mscale")
        rope.became("longrope attention factor inside the original length", "short_mscale")
    return LongRoPE(
        short_factor=lists["short_factor"], long_factor=lists["long_factor"], original_max_position=original,
        factor=factor, attention=attention if long is None else long, attention_short=short,
    )  # fmt: skip


def _llama3(rope: Keys, setting: Setting) -> Scaling:
    factor, low, high = (required(rope, n, "llama3") for n in ("factor", "low_freq_factor", "high_freq_factor"))
    return Llama3(factor, low, high, original_length(rope, setting, "llama3"))


def _proportional(rope: Keys, setting: Setting) -> Scaling:
    fraction = rope.number("partial_rotary_factor", above=0)
    rope.became("proportional fraction", "partial_rotary_factor")
    factor = rope.number("factor", above=0)
    rope.became("proportional factor", "factor")
    return Proportional(1.0 if fraction is None else fraction, 1.0 if factor is None else factor)


def _ntk(rope: Keys, setting: Setting) -> Scaling:
    if setting.model_type != "new":
        raise ValueError(
            f"{rope.places[0][0]}type 'ntk' is defined by Alibaba's gte models ('new') only, and model_type is "
            f"{setting.model_type!r}; write rope_theta times factor ** (dim / (dim - 2)) if plain NTK is meant"
        )
    return NTKFixed(required(rope, "factor", "ntk_fixed"))


SCHEMES: dict[str, Callable[[Keys, Setting], Scaling | None]] = {
    "default": _default, "linear": _linear, "dynamic": _dynamic, "yarn": _yarn, "longrope": _longrope,
    "llama3": _llama3, "proportional": _proportional, "ntk": _ntk,
}  # fmt: skip
