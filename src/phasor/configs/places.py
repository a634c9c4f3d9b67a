"""Where the rope parameters stand: one dictionary for all layers, or one per kind of layer."""

from typing import Any

from ..checks import whole
from .family import Family
from .fields import Reader
from .keys import Keys, is_dict
from .scalings import ORIGINAL

BOTH_SCALED = ("modernbert", "modernbert-decoder")  # elsewhere a legacy rope_scaling holds for full attention only
NESTED_ONLY = ("cohere_compass_text", "dots3_note_text", "neomme")
SCALED = ("full_attention", "compress")
STEP_LABELS = ("full_attention", "sliding_attention")


def label_of(model_type: str, word: str) -> str:
    """The kind of layer under which rope parameters stand, from the layer's type."""
    if model_type == "deepseek_v4":
        return "main" if word == "sliding_attention" else "compress"
    return word


def labels(family: Family) -> tuple[str, ...]:
    """The kinds of layers that have parameters of their own; empty if all share one dictionary."""
    rope = family.rope
    if rope is None:
        return STEP_LABELS
    nested = isinstance(rope, dict) and all(v is None or isinstance(v, dict) for v in rope.values())
    return tuple(rope) if nested and isinstance(rope, dict) else ()


def default_of(family: Family, label: str) -> dict[str, Any] | None:
    """The class's default parameters of one kind of layer; None: those layers do not rotate by default."""
    rope: Any = family.rope
    if rope is None:
        return {}
    if not isinstance(rope, dict):
        return {"rope_theta": rope}
    return rope.get(label) if labels(family) else rope


def rope_places(reader: Reader) -> dict[str, Keys | None] | Keys:
    """The rope parameters as one level of keys, or one per kind of layer (None: the config says null, no rotation)."""
    keys = reader.keys
    found = keys.found("rope_scaling", "rope_parameters")
    for path, value in found:
        is_dict(path, value)
    places = [(f"{path}.", value) for path, value in found if value]
    kinds = labels(reader.family)
    if not kinds:
        return Keys(places, keys.sources)
    levels = {kind: _level(keys, places, kind) for kind in kinds}
    for path, data in places:
        outer = {k: v for k, v in data.items() if k not in kinds}
        level = Keys([(path, outer)], keys.sources)
        if len(outer) < len(data):
            level.found("rope_type", "type")  # transformers leaves a copy of these beside the nested ones
            if reader.model_type == "cohere_compass_text":  # published configs have this one beside them too
                level.became("no effect: beside the parameters of the layer types", "rope_theta")
            level.refuse_unused(f"{reader.model_type}, whose parameters stand under {' and '.join(kinds)},")
        else:
            if reader.model_type in NESTED_ONLY:
                raise ValueError(
                    f"{path.rstrip('.')} must have parameters per layer type ({', '.join(kinds)}) for "
                    f"{reader.model_type}, got {sorted(data)}"
                )
            for kind in kinds:
                if reader.model_type in BOTH_SCALED or kind in SCALED:
                    levels[kind] = level
    return levels


def _level(keys: Keys, places: list[tuple[str, Any]], kind: str) -> Keys | None:
    inside = [(path, data[kind]) for path, data in places if kind in data]
    for path, value in inside:
        if value is not None:
            is_dict(path + kind, value)
    if inside and all(value is None for _, value in inside):
        keys.sources[inside[0][0] + kind] = "no rotation in these layers"
        return None
    return Keys([(f"{path}{kind}.", value) for path, value in inside if value is not None], keys.sources)


def without_effect(reader: Reader, places: dict[str, Keys | None] | Keys, used: set[str]) -> None:
    """Account for keys that speak of what this model does not have."""
    if isinstance(places, dict):
        for kind in set(places) - used:
            reader.keys.became(f"no effect: no layer is of type {kind}", *reader.base_names(kind))
    for path, value in reader.keys.found(ORIGINAL):
        whole(path, value)
        reader.sources.setdefault(path, "no effect without a scaling that needs it")
