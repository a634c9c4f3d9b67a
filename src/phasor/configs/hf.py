"""One text config in Hugging Face's format -> the rotary encoding of its layers."""

from typing import Any

from ..scaling import Scaling, YaRN
from ..scaling.yarn import magnitude
from ..spec import RotarySpec
from .family import Family
from .fields import Reader, read_axes, read_base, read_width, stepped
from .keys import Keys
from .layers import layer_types, rotating
from .model import ModelRotary
from .places import default_of, label_of, rope_places, without_effect
from .quirks import checked_switches, head_widths, layer_bases, no_rotary, notes_of, temperature, unscaled
from .scalings import Setting, read_scaling, scaling_type
from .sizes import read_sizes


def read_text_config(model_type: str, family: Family, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
    """The encoding of one text config, and its keys for the final check that nothing was left out."""
    keys = Keys([(path, data)], {})
    checked_switches(model_type, keys)
    sizes = read_sizes(family, keys, path)
    reader = Reader(model_type, family, keys, path, sizes.max_position, sizes.length_key)
    words = layer_types(model_type, keys, sizes.layers)
    bases = layer_bases(model_type, keys, words)
    turns = [t and (own is None or own[0] > 0) for t, own in zip(rotating(model_type, keys, words), bases, strict=True)]
    places = rope_places(reader)
    heads = head_widths(model_type, keys, words, sizes.head_dim)
    plain = unscaled(model_type, keys, sizes.layers)

    built: dict[Any, tuple[RotarySpec | None, float]] = {}
    layers: list[RotarySpec | None] = []
    for i, word in enumerate(words):
        key = (label_of(model_type, word), heads[i], bases[i])
        if turns[i] and key not in built:
            built[key] = _spec(reader, key[0], places, heads[i], bases[i])
        spec = built[key][0] if turns[i] else None
        layers.append(spec.replace(scaling=None) if spec is not None and plain[i] else spec)
    if all(spec is None for spec in layers):
        raise no_rotary(model_type, f"rotates in none of its {sizes.layers} layers")
    without_effect(reader, places, {label for label, _, _ in built})
    softmax = next(factor for spec, factor in built.values() if spec is not None)
    model = ModelRotary(
        model_type=model_type, layers=tuple(layers), layer_types=words, num_heads=sizes.heads,
        num_kv_heads=sizes.kv_heads, max_position=sizes.max_position, part=path.rstrip("."), sources=keys.sources,
        softmax_factor=softmax, notes=notes_of(model_type, keys, layers),
    )  # fmt: skip
    return model, keys


def _spec(
    reader: Reader,
    label: str,
    places: dict[str, Keys | None] | Keys,
    head_dim: int,
    own_base: tuple[float, float] | None,
) -> tuple[RotarySpec | None, float]:
    """The spec of the layers under one label (None: they do not rotate), and the factor on their softmax scale."""
    if isinstance(places, dict) and label not in places:
        raise ValueError(
            f"{reader.model_type} has a layer of type {label!r}, and its rope parameters know only {', '.join(places)}"
        )
    rope = places[label] if isinstance(places, dict) else places
    defaults = default_of(reader.family, label)
    if rope is None or (defaults is None and not rope.places):
        return None, 1.0
    if not rope.places:
        rope = _class_default(reader, defaults or {})
    setting = Setting(reader.model_type, reader.keys, reader.max_position, reader.length_key)
    name = scaling_type(rope, setting)
    base = read_base(reader, label, rope, (defaults or {}).get("rope_theta"), own_base)
    scaling = stepped(reader, read_scaling(name, rope, setting))
    if reader.model_type == "deepseek_v4" and isinstance(scaling, YaRN) and scaling.attention is None:
        scaling = YaRN(**{**vars(scaling), "attention": 1.0})  # its code scales neither cos and sin nor the softmax
    width = read_width(reader, name, rope, head_dim, own_base)
    axes = read_axes(reader, rope)
    temperature(rope, reader.keys)
    rope.refuse_unused(f"{reader.model_type} with {'no' if name == 'default' else name} scaling")
    try:
        spec = RotarySpec(
            head_dim=width.head_dim, rotary_dim=width.rotary_dim, base=base, interleaved=width.interleaved,
            trailing=width.trailing, scaling=scaling, axes=axes, tables=reader.family.tables,
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(f"the {label} layers of this {reader.model_type} config: {error}") from None
    return spec, _softmax_factor(reader.family, scaling)


def _class_default(reader: Reader, defaults: dict[str, Any]) -> Keys:
    """The config class's own parameters, where the config has none."""
    rest = {k: v for k, v in defaults.items() if k != "rope_theta"}
    if reader.keys.found("partial_rotary_factor", "rotary_dim"):
        rest.pop("partial_rotary_factor", None)
    if rest:
        reader.default("rope_parameters", str(rest))
    return Keys([(f"{reader.family.config}'s default ", rest)], {})


def _softmax_factor(family: Family, scaling: Scaling | None) -> float:
    """DeepSeek multiplies the softmax scale by ``magnitude(factor, mscale_all_dim) ** 2``."""
    if family.mla is None or not isinstance(scaling, YaRN) or not scaling.mscale_all_dim:
        return 1.0
    mscale = magnitude(scaling.factor, scaling.mscale_all_dim)
    return mscale * mscale  # a power of an absurd mscale would raise OverflowError; infinity is refused as a factor
