"""What keys of a family change of a spec (``adjust``) or of the model (``after``), and how ``write`` puts it back."""

from dataclasses import replace
from typing import Any

from ...rotary.axes import Axial
from ...rotary.model_rotary import ModelRotary
from ...rotary.scaling import Proportional, SteppedNTK, YaRN
from ...rotary.temperature import LearnedLog, LogFloor, Power, Temperature
from ...support.checks import number
from ..reading.keys import Keys, Reading, is_list
from ..reading.refusal import REMOVE, Reason, Refused, contradiction
from ..reading.schemes import ORIGINAL
from ..reading.text_row import SpecFields
from .layer_kinds import listed


def by_alpha(rope: Keys) -> str:
    """HunYuan's dynamic scaling is a fixed base where ``alpha`` is stated (DynamicNTKAlpha)."""
    return "alpha" if rope.entries("alpha") else "dynamic"


def even_width(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """An odd number of channels is made even after the exponents are divided by it (GLM-4 MoE, Moonshine).

    Not with YaRN, whose ramp has a value too few, in the models' code as well.
    """
    width = fields["rotary_dim"]
    odd = width % 2 and not isinstance(fields["scaling"], YaRN)
    return {**fields, "rotary_dim": width + 1, "exponent_dim": width} if odd else fields


def last_channels(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """DeepSeek-V4 rotates the last channels, and scales neither cos and sin nor the softmax."""
    scaling = fields["scaling"]
    if isinstance(scaling, YaRN) and scaling.attention is None:
        scaling = replace(scaling, attention=1.0)
    return {**fields, "trailing": True, "scaling": scaling}


def not_proportional(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """Dots 3's frequencies would then be those of whole heads, of which it rotates a part."""
    if isinstance(fields["scaling"], Proportional):
        said = f"proportional scaling forms frequencies for whole heads, of which {reading.model_type} rotates a part"
        raise Refused(f"{said}; {REMOVE}", Reason.BEYOND)
    return fields


def share_of_pairs(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """MiniMax-M2's class makes a share of ``rotary_dim``, by which proportional scaling forms whole heads."""
    scaling, head_dim = fields["scaling"], fields["head_dim"]
    widths = [(path, width / head_dim) for path, width in reading.keys.entries("rotary_dim")]
    if not isinstance(scaling, Proportional) or not widths:
        return fields
    reading.keys.sources.pop(f"{reading.path}partial_rotary_factor", None)  # which is not the class's default then
    stated = [*rope.entries("partial_rotary_factor"), *reading.keys.entries("partial_rotary_factor"), *widths]
    fraction = reading.keys.settle(stated, "proportional partial_rotary_factor {:.10g}")
    return {**fields, "rotary_dim": head_dim, "scaling": replace(scaling, fraction=fraction)}


def by_ratio(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """ChatGLM states a factor on the base, and ChatGLM-6B has a block of pairs for each of its two positions."""
    base, ratio = fields["base"], reading.keys.number("rope_ratio", above=0)
    if ratio is not None:
        base = float(base * ratio)
        reading.keys.explain(f"base times {ratio:.10g}: {base:.10g}", "rope_ratio")
    if not reading.keys.flag("position_encoding_2d"):
        return {**fields, "base": base}
    return {**fields, "base": base, "blocks": 2, "axes": Axial((fields["rotary_dim"] // 4,) * 2)}


def into_ratio(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `by_ratio` reads of the base."""
    ratio = next(spec.base for spec in model.distinct) / 10_000.0
    if ratio != (data.get("rope_ratio") or 1):
        data["rope_ratio"] = ratio


def into_attention(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `base_in_attention` reads; the same base beside it is for transformers."""
    inner = data.get("attn_config")
    if isinstance(inner, dict) and inner.get("rope_theta") is not None:
        inner["rope_theta"] = next(spec.base for spec in model.distinct)


def by_beta(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """Ministral 3 and Mistral 4: ``llama_4_scaling_beta`` in the rope parameters, over the trained length."""
    beta = rope.number("llama_4_scaling_beta", at_least=0)
    rope.number("max_position_embeddings", above=0)
    rope.explain("no effect: repeats the length of the config", "max_position_embeddings")
    if beta is None:
        return fields
    length = rope.whole(ORIGINAL)
    if length is None:
        raise ValueError(f"{rope.path}{ORIGINAL} is missing: llama_4_scaling_beta counts in it; add it")
    rope.explain(f"queries grow with beta {beta:.10g} per {length} positions", "llama_4_scaling_beta")
    return {**fields, "temperature": LogFloor(beta, length)} if beta else fields


def into_beta(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `by_beta` reads."""
    scheme = next(iter(model.temperatures), None)
    for rope in (data.get("rope_parameters"), data.get("rope_scaling")):
        if isinstance(rope, dict) and isinstance(scheme, LogFloor):
            rope["llama_4_scaling_beta"] = scheme.beta
        elif isinstance(rope, dict):
            rope.pop("llama_4_scaling_beta", None)


def stepped(reading: Reading, rope: Keys, fields: SpecFields) -> SpecFields:
    """Qwen-1's dynamic NTK, whose trained length is ``seq_length`` and not ``max_position_embeddings``."""
    if not reading.keys.flag("use_dynamic_ntk"):
        reading.keys.explain("no dynamic NTK", "use_dynamic_ntk")
        return fields
    length = reading.keys.whole("seq_length")
    if length is None:
        raise ValueError(f"{reading.path}seq_length is missing: use_dynamic_ntk counts from it; add it")
    reading.keys.explain("stepped NTK scaling", "use_dynamic_ntk")
    reading.keys.explain(f"original_max_position {length}", "seq_length")
    return {**fields, "scaling": SteppedNTK(length)}


def into_flags(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `stepped` reads."""
    scaling = next(iter(model.distinct)).scaling
    if isinstance(scaling, SteppedNTK):
        data.update(use_dynamic_ntk=True, seq_length=scaling.original_max_position)
    elif data.get("use_dynamic_ntk"):
        data["use_dynamic_ntk"] = False


def logn(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Qwen-1 scales its queries beyond the trained length."""
    text = "queries beyond seq_length are scaled by log(position) / log(seq_length)"
    scaled = keys.flag("use_logn_attn")
    keys.explain(text if scaled else "off", "use_logn_attn")
    return replace(model, notes=(*model.notes, text)) if scaled else model


def rotary_value(model: ModelRotary, keys: Keys) -> ModelRotary:
    """RoFormer forms its angles in float64, and may rotate v like q and k."""
    value = keys.flag("rotary_value")
    keys.explain("v is rotated like q and k" if value else "off", "rotary_value")
    return replace(model, own_angles="float64", targets=("q", "k", "v") if value else model.targets)


def temperatures(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Llama 4 scales the queries of layers that do not rotate, unless ``attn_temperature_tuning`` is off."""
    tuning = keys.get("attn_temperature_tuning")
    keys.explain("queries of layers without rotation grow" if tuning else "off", "attn_temperature_tuning")
    beta, length = keys.number("attn_scale", at_least=0), keys.whole("floor_scale")
    for name, value, default in (("attn_scale", beta, "0.1"), ("floor_scale", length, "8192")):
        if value is None:
            keys.default(name, default)
    if tuning is not None and not tuning:
        return model
    return _unrotated_by(LogFloor(0.1 if beta is None else beta, 8192 if length is None else length, offset=1), model)


def power(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Beam scales the queries of its layers without rotation by a power of the position."""
    return _unrotated_by(Power(), model)


def _unrotated_by(scheme: Temperature, model: ModelRotary) -> ModelRotary:
    layers = tuple(scheme if spec is None else None for spec in model.layers)
    return replace(model, temperatures=layers if any(layers) else ())


def learned_log(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Mistral Large 4 learns how its queries grow."""
    return replace(model, temperatures=(LearnedLog(),) * len(model.layers))


def into_no_rope_layers(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `by_no_rope_layers` reads: a 1 for each layer that rotates."""
    rotates = [spec is not None for spec in model.layers]
    if rotates != listed(Keys([("", data)], {}), len(rotates)):
        data["no_rope_layers"] = [int(one) for one in rotates]


def by_zeros(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Muse reads of the bases in ``layer_rope_theta`` only whether they are 0: those layers do not rotate."""
    count, base = len(model.layers), next(spec.base for spec in model.layers if spec is not None)
    stated = keys.get("layer_rope_theta", check=is_list)
    if stated is None:
        keys.sources["layer_rope_theta"] = "not in config: every fourth layer, counted from the last, does not rotate"
        stated = [base if (count - 1 - i) % 4 else 0 for i in range(count)]
    if len(stated) != count:
        raise ValueError(f"layer_rope_theta must have one value per layer, {count} here, got {len(stated)}")
    for i, value in enumerate(stated):
        number(f"layer_rope_theta[{i}]", value, at_least=0)
        if value not in (0, base):
            out = "the code has one base for all layers that rotate; write 0 or that base"
            both = [f"{keys.path}{name}" for name in ("layer_rope_theta", "rope_parameters")]
            raise contradiction(f"layer_rope_theta[{i}]", "rope_theta", (value, base), out, *both)
    keys.explain("which layers rotate: those without a 0", "layer_rope_theta")
    return replace(model, layers=tuple(s if v else None for s, v in zip(model.layers, stated, strict=True)))


def zeros(model: ModelRotary, data: dict[str, Any]) -> None:
    """What `by_zeros` reads: the base of each layer that rotates, and 0 for the others."""
    count = len(model.layers)
    fourth = all((spec is None) == (not (count - 1 - i) % 4) for i, spec in enumerate(model.layers))
    if data.get("layer_rope_theta") is not None or not fourth:
        data["layer_rope_theta"] = [0 if spec is None else spec.base for spec in model.layers]


def some_unscaled(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Molmo 2 scales the layers that ``rope_scaling_layers`` lists, and no others."""
    scaled = keys.wholes("rope_scaling_layers")
    keys.explain("the layers that are scaled", "rope_scaling_layers")
    if scaled is None:
        return model
    plain = {spec: spec.replace(scaling=None) for spec in model.distinct}
    layers = (s if s is None or i in scaled else plain[s] for i, s in enumerate(model.layers))
    return replace(model, layers=tuple(layers))


def every_cycle(model: ModelRotary, keys: Keys) -> ModelRotary:
    """HRM runs its layers once per cycle; a config without ``num_layers_per_stack`` counts those of one stack."""
    high, low = keys.whole("H_cycles") or 2, keys.whole("L_cycles") or 3
    runs = high * (low + 1) if keys.get("num_layers_per_stack") is None else 1
    return replace(model, layers=model.layers * runs, layer_types=model.layer_types * runs)


def both_stacks(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Moonshine's layers: those of the encoder, then those of the decoder."""
    before = keys.size("encoder_num_hidden_layers") or 6
    kv_heads = keys.size("encoder_num_key_value_heads") or model.num_heads, model.num_kv_heads
    notes = ["cross-attention does not rotate"]
    if kv_heads[0] != kv_heads[1]:
        notes.append(f"key heads: {kv_heads[0]} in the encoder, {kv_heads[1]} in the decoder")
    return replace(
        model, layers=(model.layers[0],) * before + model.layers, num_kv_heads=max(kv_heads),
        layer_types=("encoder",) * before + ("decoder",) * len(model.layers), notes=(*model.notes, *notes),
    )  # fmt: skip


def indexed_in_float32(model: ModelRotary, keys: Keys) -> ModelRotary:
    """Dots 3 gives layers with an indexer float32 tables, whatever the dtype of the activations."""
    layers = [
        spec.replace(tables="float32") if spec is not None and word == "indexed_attention" else spec
        for spec, word in zip(model.layers, model.layer_types, strict=True)
    ]
    return replace(model, layers=tuple(layers))
