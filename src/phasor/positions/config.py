"""The rule of a model, read from its config."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .rules import RULES, Rule

# key of the config -> field of the rule
SIZES = {
    "spatial_merge_size": "merge",
    "temporal_merge_size": "frame_merge",
    "tokens_per_second": "rate",
    "position_id_per_seconds": "rate",
    "seconds_per_chunk": "chunk",
}
PLACES = ("vision_config", "text_config", "thinker_config")


def rule(config: Mapping[str, Any]) -> Rule:
    """The rule by which a model numbers images, video and sound, with the sizes its config states.

    ``config`` is the parsed ``config.json`` of the whole model, or of its thinker or talker (Qwen-Omni). A size that
    it leaves out is that of transformers' default config. Raises ``ValueError`` for a ``model_type`` without such a
    rule: its positions are plain text positions, or not known here.

    >>> rule({"model_type": "qwen2_5_vl", "vision_config": {"tokens_per_second": 2}}).rate
    2
    """
    name = config.get("model_type") if isinstance(config, Mapping) else None
    known = RULES.get(str(name).removesuffix("_thinker").removesuffix("_talker"))
    if known is None:
        raise ValueError(
            f"config must be a dict (config.to_dict()) with a model_type out of {', '.join(RULES)}, got "
            f"{name or type(config).__name__!r}; say another rule with phasor.positions.Rule"
        )
    found = {}
    for part in _parts(config):
        for key, field in SIZES.items():
            # Qwen-Omni's vision tower carries the tokens_per_second of Qwen2.5-VL, which its code does not read
            if key in part and (key != "tokens_per_second" or known.time == "interval"):
                found[field] = part[key]
        sections = _sections(part) if known.after == "tokens" else ()
        if sections:
            found["axes"] = len(sections)
    return replace(known, **found)


def _parts(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The config and the parts inside it that speak of positions."""
    inner = [config[place] for place in PLACES if isinstance(config.get(place), Mapping)]
    return [config, *(part for each in inner for part in _parts(each))]


def _sections(part: Mapping[str, Any]) -> list[int]:
    rope = part.get("rope_parameters") or part.get("rope_scaling") or {}
    return rope.get("mrope_section") or rope.get("xdrope_section") or []
