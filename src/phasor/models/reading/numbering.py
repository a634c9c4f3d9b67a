"""How a model numbers images, video and sound among its text: the rule of its row, with the sizes its config states."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ...positions import Rule
from .composite import ConfigTree
from .keys import Keys, is_dict, near
from .row import Row

VISION, OWN = "vision_config", ""
SIZES = {  # key of the config -> where it stands, field of the rule
    "spatial_merge_size": (VISION, "merge"),
    "temporal_merge_size": (VISION, "frame_merge"),
    "tokens_per_second": (VISION, "rate"),
    "position_id_per_seconds": (OWN, "rate"),
    "seconds_per_chunk": (OWN, "chunk"),
}
PLACES = (VISION, "text_config", "thinker_config")
STAGES = ("_thinker", "_talker")


def read_numbering(config: ConfigTree) -> Rule:
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
    sizes: dict[str, Any] = {}
    elsewhere: list[tuple[str, str, Any]] = []
    for path, part in _parts(config.data):
        keys = Keys([(path, part)])
        for key, (place, field) in SIZES.items():
            # Qwen-Omni's vision tower carries the tokens_per_second of Qwen2.5-VL, which its code does not read
            if key == "tokens_per_second" and row.positions.time != "interval":
                continue
            if (value := keys.number(key, above=0)) is None:
                continue
            if place == (VISION if path.endswith(f"{VISION}.") else OWN):
                sizes[field] = value
            else:
                elsewhere.append((path + key, field, value))
        for key in part:
            if key not in SIZES and near(key, SIZES) and part[key] is not None:
                raise ValueError(f"{path}{key} is not understood{near(key, SIZES)}")
        ropes = [(name, part[name]) for name in ("rope_parameters", "rope_scaling") if isinstance(part.get(name), dict)]
        rope = Keys([(f"{path}{name}.", data) for name, data in ropes if row.positions.after == "tokens"])
        if stated := rope.wholes("mrope_section") or rope.wholes("xdrope_section"):
            sizes["axes"] = len(stated)
    rule = replace(row.positions, **sizes)
    for path, field, value in elsewhere:
        if getattr(rule, field) != value:
            raise ValueError(f"{path} is {value!r}, where the code of {name} does not look for it; move or remove it")
    return rule


def _parts(config: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """The config and the parts inside it that speak of positions."""
    yield path, config
    for place in PLACES:
        if config.get(place) is not None:
            is_dict(path + place, config[place])
            yield from _parts(config[place], f"{path}{place}.")
