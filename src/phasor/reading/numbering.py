"""How a model numbers images, video and sound among its text: the rule of its row, with the sizes its config states."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ..positions import Rule
from .composite import Composite
from .keys import Keys, near
from .row import Row

SIZES = {  # key of the config -> field of the rule
    "spatial_merge_size": "merge",
    "temporal_merge_size": "frame_merge",
    "tokens_per_second": "rate",
    "position_id_per_seconds": "rate",
    "seconds_per_chunk": "chunk",
}
PLACES = ("vision_config", "text_config", "thinker_config")
STAGES = ("_thinker", "_talker")


def read_numbering(config: Composite) -> Rule:
    """The rule of a whole model, or of its thinker or talker; raises ``ValueError`` for a model without one."""
    name = str(config.data.get("model_type"))
    for stage in STAGES:
        name = name.removesuffix(stage)
    row, known = config.rows.get(name), [n for n, r in config.rows.items() if isinstance(r, Row) and r.positions]
    if not isinstance(row, Row) or row.positions is None:
        raise ValueError(
            f"model_type must be one that numbers images or sound by a rule ({', '.join(sorted(known))}), got "
            f"{name!r}; say another rule with phasor.positions.Rule"
        )
    found: dict[str, tuple[str, Any]] = {}
    for path, part in _parts(config.data):
        keys = Keys([(path, part)], {})
        for key, field in SIZES.items():
            # Qwen-Omni's vision tower carries the tokens_per_second of Qwen2.5-VL, which its code does not read
            if key == "tokens_per_second" and row.positions.time != "interval":
                continue
            value = keys.number(key, above=0)
            if value is not None and found.get(field, ("", value))[1] != value:
                raise ValueError(f"{found[field][0]} and {path}{key} contradict each other: keep one")
            if value is not None:
                found[field] = path + key, value
        for key in part:
            if isinstance(key, str) and key not in SIZES and near(key, SIZES) and part[key] is not None:
                raise ValueError(f"{path}{key} is not understood{near(key, SIZES)}")
        if row.positions.after == "tokens" and (sections := _sections(part)):
            found["axes"] = path, len(sections)
    return replace(row.positions, **{field: value for field, (_, value) in found.items()})


def _parts(config: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The config and the parts inside it that speak of positions."""
    yield path, config
    for place in PLACES:
        if isinstance(config.get(place), dict):
            yield from _parts(config[place], f"{path}{place}.")


def _sections(part: dict[str, Any]) -> list[int]:
    rope = part.get("rope_parameters") or part.get("rope_scaling") or {}
    return rope.get("mrope_section") or rope.get("xdrope_section") or [] if isinstance(rope, dict) else []
