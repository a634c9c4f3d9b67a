"""vLLM 0.33.0: transformers' config classes, --hf-overrides on top of them, and rotations of its own."""

from dataclasses import replace
from typing import Any, ClassVar

from ...models.configs import ModelRotary
from .base import CannotSayError, Engine, Flags, Reading, Rule, Settings
from .engine_config import ORIGINAL, ROPES, Seen, walk
from .engine_rotation import softmax_rules, turned
from .flags import json_object, length
from .rope import Rope
from .vllm_rope import FILES, VERSION, model_of, rotation

LENGTHENED = ("default", "linear", "ntk", "dynamic", "proportional")  # types whose factor lengthens the model


class Vllm(Engine):
    name = "vllm"
    version = VERSION
    flags: ClassVar = {"--hf-overrides": json_object, "--max-model-len": length, "VLLM_ALLOW_LONG_MAX_MODEL_LEN": str}
    gone: ClassVar = {
        "--rope-scaling": "--hf-overrides '{\"rope_parameters\": {…}}'",
        "--rope-theta": "--hf-overrides '{\"rope_parameters\": {…}}'",
    }

    def read(self, seen: Seen, flags: Flags) -> Reading:
        rules: list[Rule] = []
        override = flags.get("--hf-overrides") or {}
        ropes, declared = overridden(seen, override, rules)
        taken = longest(seen, ropes, declared, flags, rules)
        own = model_of(seen)
        model = turned(seen, lambda kind: rotation(seen, own, kind, ropes, declared, taken, rules), ropes)
        return Reading(
            engine=self.name, version=self.version, length=taken,
            rules=(*dict.fromkeys(rules), *softmax_rules(model, "vllm/model_executor/models/deepseek_v2.py")),
            model=replace(model, max_position=declared),
        )  # fmt: skip

    def write(self, seen: Seen, wanted: ModelRotary, length: int) -> list[Settings]:
        ropes = {kind: written(seen, rope) for kind, rope in seen.parameters(wanted).items()}
        text: dict[str, Any] = {}
        if wanted.layers != seen.model.layers:
            text["rope_parameters"] = ropes if any(seen.kinds) else ropes[""]
        kinds = {rope["rope_type"] for rope in ropes.values()}
        stretch = max([float(r.get("factor", 1.0)) for r in ropes.values() if r["rope_type"] in LENGTHENED], default=1)
        stretch = stretch if model_of(seen).grown else 1.0
        if (seen.model.max_position or length) * stretch < length or "dynamic" in kinds:
            text["max_position_embeddings"] = length
        return [Settings(flags={**({"--hf-overrides": seen.nested(text)} if text else {}), "--max-model-len": length})]


def written(seen: Seen, rope: Rope) -> Rope:
    """The dictionary for vLLM: everything that its code needs, dynamic NTK and M-RoPE's YaRN as it can say them."""
    own = model_of(seen)
    if rope["rope_type"] == "dynamic":
        rope = {**rope, "max_trained_positions": seen.model.max_position}
    if rope["rope_type"] == "yarn" and "mrope_section" in rope and own.far != 1:
        if rope[ORIGINAL] % own.far:
            raise CannotSayError(
                f"vLLM takes YaRN's range at {own.far} x a whole original length, not {rope[ORIGINAL]}"
            )
        rope = {**rope, ORIGINAL: rope[ORIGINAL] // own.far}
    defaults = {"beta_fast": 32.0, "beta_slow": 1.0}
    return {**{key: defaults[key] for key in own.needs if key in defaults}, **rope}


def overridden(seen: Seen, override: dict[str, Any], rules: list[Rule]) -> tuple[dict[str, Rope], int | None]:
    """Rope parameters per kind and the declared length, after --hf-overrides."""
    source = "vllm/config/model.py: _apply_dict_overrides, _update_nested"
    ropes, declared = seen.parameters(), seen.model.max_position
    text, outside = walk(override, seen.inside)
    for name in outside:
        if name in ROPES or name in ("rope_theta", "max_position_embeddings"):
            where = ".".join(seen.inside.split("."))
            rules.append(
                Rule(f"--hf-overrides {name} has no effect: the text model reads {where}.{name}", source, True)
            )
    for name in ("rope_theta", "partial_rotary_factor"):
        if name in text:
            rules.append(Rule(f"--hf-overrides {name} has no effect: rope_parameters already hold it", source, True))
    declared = text.get("max_position_embeddings", declared)
    given = next((text[name] for name in ROPES if isinstance(text.get(name), dict)), None)
    if given is None:
        return ropes, declared
    nested = any(seen.kinds)
    if seen.inside:
        if nested:
            if flat := [key for key in given if key not in ropes]:
                rules.append(Rule(f"rope_parameters.{flat[0]} has no effect beside the kinds of layers", source, True))
            return {kind: {**rope, **given.get(kind, {})} for kind, rope in ropes.items()}, declared
        return {kind: {**rope, **given} for kind, rope in ropes.items()}, declared
    rules.append(Rule("--hf-overrides rope_parameters replaces the whole dictionary", source, True))
    if nested:
        if missing := [kind for kind in ropes if kind not in given]:
            raise ValueError(f"--hf-overrides rope_parameters must have the key {missing[0]!r}: vLLM reads it by kind")
        return {kind: dict(given[kind]) for kind in ropes}, declared
    return {kind: dict(given) for kind in ropes}, declared


def longest(seen: Seen, ropes: dict[str, Rope], declared: int | None, flags: Flags, rules: list[Rule]) -> int | None:
    """The longest sequence: --max-model-len, else what it derives; raises where vLLM would not start."""
    source = "vllm/config/model.py: _get_and_verify_max_len"
    derived = declared
    for rope in ropes.values():
        if "rope_type" not in rope:
            raise ValueError("rope_parameters.rope_type is missing: vLLM stops with a KeyError (type is not read here)")
        if rope["rope_type"] in LENGTHENED and model_of(seen).grown and derived is not None:
            factor = float(rope.get("factor") or 1.0)
            derived = int((declared or 0) * factor)
            if factor != 1:
                text = (
                    f"{rope['rope_type']} factor {factor:g} lengthens max_position_embeddings {declared} to {derived}"
                )
                rules.append(Rule(text, source, True))
    asked = flags.get("--max-model-len")
    if asked is None:
        original = seen.text.get(ORIGINAL)
        if any(rope["rope_type"] == "longrope" for rope in ropes.values()) and original:
            rules.append(Rule(f"LongRoPE without --max-model-len: {original} positions", source, True))
            return int(original)
        return derived
    if derived is not None and asked > derived:
        if flags.get("VLLM_ALLOW_LONG_MAX_MODEL_LEN") not in ("1", "true", "True"):
            raise ValueError(
                f"--max-model-len is {asked}, above the {derived} that vLLM takes from the config; override "
                "max_position_embeddings as well, or set VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"
            )
        text = f"positions from {declared} on lie outside its tables of cos and sin"
        rules.append(Rule(text, f"{FILES}/base.py: _compute_cos_sin_cache"))
    return int(asked)
