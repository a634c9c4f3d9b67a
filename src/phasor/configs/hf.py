"""One text config in Hugging Face's format -> the rotary encoding of its layers."""

from dataclasses import dataclass
from typing import Any

from ..scaling import Scaling, YaRN
from ..scaling.yarn import magnitude
from ..spec import RotarySpec
from ..temperature import Temperature
from .family import Family
from .fields import Head, Reader, read_base, read_width, stepped
from .heads import read_heads
from .keys import Keys
from .layers import layer_types, rotating
from .model import ModelRotary
from .places import default_of, label_of, rope_places, without_effect
from .quirks import by_zeros, checked_switches, layer_bases, notes_of, targets_of, unscaled, variant
from .scalings import Setting, read_scaling, scaling_type
from .sections import read_axes
from .sizes import read_sizes
from .temperatures import read_beta, read_temperatures
from .without import no_rotary

UNSCALED = ("ernie4_5_vl_moe_text", "recurrent_gemma")  # their modules refuse every other type
Places = dict[str, Keys | None] | Keys


@dataclass(frozen=True)
class Built:
    """What one kind of layer turned out to be; ``spec`` None: it does not rotate."""

    spec: RotarySpec | None
    softmax: float = 1.0
    beta: Temperature | None = None


def read_text_config(model_type: str, family: Family, data: dict[str, Any], path: str) -> tuple[ModelRotary, Keys]:
    """The encoding of one text config, and its keys for the final check that nothing was left out."""
    keys = Keys([(path, data)], {})
    checked_switches(model_type, keys)
    family = variant(model_type, family, keys)
    sizes = read_sizes(family, keys, path)
    reader = Reader(model_type, family, keys, path, sizes.max_position, sizes.length_key)
    words = layer_types(model_type, keys, sizes.layers)
    bases = layer_bases(model_type, keys, words)
    turns = [t and (own is None or own[0] > 0) for t, own in zip(rotating(model_type, keys, words), bases, strict=True)]
    places = rope_places(reader)
    heads = read_heads(model_type, family, keys, words, sizes.head_dim)
    plain = unscaled(model_type, keys, sizes.layers)

    built: dict[Any, Built] = {}
    layers: list[RotarySpec | None] = []
    for i, word in enumerate(words):
        key = (label_of(model_type, word), heads[i], bases[i])
        if turns[i] and key not in built:
            built[key] = _build(reader, key[0], places, heads[i], bases[i])
        spec = built[key].spec if turns[i] else None
        layers.append(spec.replace(scaling=None) if spec is not None and plain[i] else spec)
    base = next((spec.base for spec in layers if spec is not None), 0.0)
    layers = [s if z else None for s, z in zip(layers, by_zeros(model_type, keys, sizes.layers, base), strict=True)]
    if all(spec is None for spec in layers):
        raise no_rotary(model_type, f"rotates in none of its {sizes.layers} layers")
    without_effect(reader, places, {label for label, _, _ in built})
    rotated = [spec is not None for spec in layers]
    model = ModelRotary(
        model_type=model_type, layers=tuple(layers), layer_types=words, num_heads=sizes.heads,
        num_kv_heads=sizes.kv_heads, max_position=sizes.max_position, part=path.rstrip("."), sources=keys.sources,
        softmax_factor=next(b.softmax for b in built.values() if b.spec is not None), own_angles=family.angles,
        temperatures=read_temperatures(model_type, keys, rotated, (b.beta for b in built.values())),
        targets=targets_of(model_type, keys), notes=notes_of(model_type, keys, layers),
    )  # fmt: skip
    return model, keys


def _build(reader: Reader, label: str, places: Places, head: Head, own_base: tuple[float, float] | None) -> Built:
    """What the layers under one label do."""
    family = reader.family
    if isinstance(places, dict) and label not in places:
        raise ValueError(
            f"{reader.model_type} has a layer of type {label!r}, and its rope parameters know only {', '.join(places)}"
        )
    rope = places[label] if isinstance(places, dict) else places
    defaults = default_of(family, label)
    if rope is None or (defaults is None and not rope.places):
        return Built(None)
    if not rope.places:
        rope = _class_default(reader, defaults or {})
    setting = Setting(
        reader.model_type, reader.keys, reader.max_position, reader.length_key, nested=isinstance(places, dict)
    )
    name = scaling_type(rope, setting)
    if name != "default" and reader.model_type in UNSCALED:
        raise ValueError(f"the code of {reader.model_type} has no scaling, got {name!r}; remove the keys")
    base = read_base(reader, label, rope, (defaults or {}).get("rope_theta"), own_base)
    scaling = stepped(reader, read_scaling(name, rope, setting))
    if reader.model_type == "deepseek_v4" and isinstance(scaling, YaRN) and scaling.attention is None:
        scaling = YaRN(**{**vars(scaling), "attention": 1.0})  # its code scales neither cos and sin nor the softmax
    width = read_width(reader, name, rope, head, own_base)
    axes, second = read_axes(reader, rope, width.rotary_dim // 2)
    beta = read_beta(reader.model_type, rope)
    rope.refuse_unused(f"{reader.model_type} with {'no' if name == 'default' else name} scaling")
    try:
        spec = RotarySpec(
            head_dim=width.head_dim, rotary_dim=width.rotary_dim, trailing=width.trailing,
            interleaved=width.interleaved, permuted=width.permuted, blocks=family.blocks, reverse=family.reverse,
            base=base, exponent_dim=width.exponent_dim, learned=family.learned, scaling=scaling, axes=axes,
            second=second, tables=family.tables,
        )  # fmt: skip
    except ValueError as error:
        raise ValueError(f"the {label} layers of this {reader.model_type} config: {error}") from None
    return Built(spec, _softmax_factor(family, scaling), beta)


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
