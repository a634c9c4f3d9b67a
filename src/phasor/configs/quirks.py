"""What single families do differently: switches, bases per layer, what is rotated, notes."""

from dataclasses import replace

from ..checks import number
from ..scaling import DynamicNTK
from ..spec import RotarySpec
from .family import Family
from .keys import Keys, agreed, is_list
from .layer_rules import LISTED_NOPE
from .without import ALIBI, LEARNED, NOPE, no_rotary

ROTARY_WORDS = ("rope", "rotary")
REQUIRED_WORD = {"esm": LEARNED, "new": LEARNED, "granitemoehybrid": NOPE}
LAYER_LISTS = {"step3p5": "rope_theta", "ultrabert": "rope_theta", "granite_swa": "layer_rope_theta"}
LAYER_LISTS["granitemoe_swa"] = "layer_rope_theta"
ZEROS = ("muse_glimmer_text", "muse_spark_text")  # layer_rope_theta says only which layers rotate


def checked_switches(model_type: str, keys: Keys) -> None:
    """Refuse configs whose switches turn the rotation off."""
    word = keys.word("position_embedding_type")
    if word in ("alibi",):
        raise no_rotary(model_type, ALIBI)
    if model_type in REQUIRED_WORD and word not in ROTARY_WORDS:
        raise no_rotary(model_type, f"{REQUIRED_WORD[model_type]} (position_embedding_type is {word!r})")
    meaning = "rotary" if word in ROTARY_WORDS else "no effect: the code always rotates"
    keys.became(meaning, "position_embedding_type")
    if word not in (None, *ROTARY_WORDS, "absolute"):
        raise ValueError(f"position_embedding_type is {word!r}; known: rope, rotary, alibi, absolute")
    for name, encoding in (("alibi", ALIBI), ("mla_use_nope", NOPE)):
        if keys.flag(name):
            raise no_rotary(model_type, f"{encoding} ({name} is true)")
        keys.became("off", name)
    for name in ("use_rotary_pos_emb", "rotary", "rope", "use_mem_rope", "use_pos_enc"):
        if keys.flag(name) is False:
            raise no_rotary(model_type, f"{LEARNED if name == 'rotary' else NOPE} ({name} is false)")
        keys.became("on", name)
    if model_type == "gpt_neo" and not keys.flag("rotary"):
        raise no_rotary("gpt_neo", LEARNED)
    if model_type == "zamba2" and not keys.found("use_mem_rope"):
        raise no_rotary(model_type, f"{NOPE} (use_mem_rope is not true)")
    if model_type == "baichuan" and keys.get("hidden_size", "d_model") != 4096:
        raise no_rotary("baichuan 13B", ALIBI)
    if model_type == "chatglm":
        _chatglm(keys)
    if keys.flag("rope_is_neox_style") is False:
        raise ValueError(f"rope_is_neox_style is false, but the code of {model_type} uses halves; remove the key")
    keys.became("halves", "rope_is_neox_style")
    keys.became("no effect: which kernel rotates", "flash_rotary")
    keys.became("M-RoPE, as the code does always", "use_3d_rope")
    keys.became("no effect on the encoding", "use_position_ids")
    keys.became("a matter of the indexer", "indexer_rope_interleave")
    if model_type == "step3p5":
        agreed([("the code of step3p5", ["full_attention"]), *keys.found("yarn_only_types")])
        keys.became("rope_scaling holds for full attention only", "yarn_only_types")


def _chatglm(keys: Keys) -> None:
    if keys.flag("original_rope") is False:
        raise ValueError("original_rope is false: that layout of ChatGLM is not known; describe it with RotarySpec")
    keys.became("interleaved pairs", "original_rope")


def variant(model_type: str, family: Family, keys: Keys) -> Family:
    """The family as this config's switches make it: ChatGLM-6B turns two halves of each head by two positions."""
    if model_type != "chatglm":
        return family
    if keys.flag("position_encoding_2d"):
        keys.became("position and block position, each for one half of the head, in halves", "position_encoding_2d")
        return replace(family, partial=1.0, interleaved=False, blocks=2)
    keys.became("off", "position_encoding_2d")
    return family


def layer_bases(model_type: str, keys: Keys, words: tuple[str, ...]) -> list[tuple[float, float] | None]:
    """``(base, partial factor)`` of each layer where the config lists them, else None."""
    name = LAYER_LISTS.get(model_type)
    listed = keys.found(name) if name else []
    if not listed or not isinstance(listed[0][1], list | tuple):
        return [None] * len(words)
    path, bases = listed[0]
    shares = keys.get("partial_rotary_factors", check=is_list) or [1.0] * len(bases)
    for where, values in ((path, bases), ("partial_rotary_factors", shares)):
        if len(values) < len(words):
            raise ValueError(f"{where} must have one value per layer, {len(words)} here, got {len(values)}")
        for i, value in enumerate(values):
            number(f"{where}[{i}]", value, at_least=0)
    keys.became("base of each layer", str(name))
    keys.became("share of the head that turns, of each layer", "partial_rotary_factors")
    return [(float(b), float(s)) for b, s in zip(bases[: len(words)], shares, strict=False)]


def by_zeros(model_type: str, keys: Keys, count: int, base: float) -> list[bool]:
    """Which layers rotate where ``layer_rope_theta`` lists bases of which the code reads only whether they are 0."""
    listed = keys.get("layer_rope_theta", check=is_list) if model_type in ZEROS else None
    if listed is None:
        if model_type in ZEROS:
            keys.sources["layer_rope_theta"] = (
                "not in config: every fourth layer, counted from the last, does not rotate"
            )
        return [model_type not in ZEROS or (count - 1 - i) % 4 != 0 for i in range(count)]
    if len(listed) != count:
        raise ValueError(f"layer_rope_theta must have one value per layer, {count} here, got {len(listed)}")
    for i, value in enumerate(listed):
        number(f"layer_rope_theta[{i}]", value, at_least=0)
        if value not in (0, base):
            raise ValueError(
                f"layer_rope_theta[{i}] is {value!r}, but the code of {model_type} uses rope_theta {base:.10g} for all "
                "layers that rotate; write 0 or that base, or describe the layers with RotarySpec yourself"
            )
    keys.became("which layers rotate: those without a 0", "layer_rope_theta")
    return [value != 0 for value in listed]


def unscaled(model_type: str, keys: Keys, count: int) -> list[bool]:
    """Layers that leave the scaling out (Molmo 2 scales the listed ones only)."""
    listed = keys.wholes("rope_scaling_layers") if model_type == "molmo2_text" else None
    keys.became("the layers that are scaled", "rope_scaling_layers")
    return [listed is not None and i not in listed for i in range(count)]


NOTES = {
    "chatglm": ("the first ChatGLM-6B forms its angles in float16; this spec has the ladder without that rounding",),
    "deepseek_v4": ("compressed keys stand at the first position of their block",),
    "dots3_note_text": ("layers of different types have different numbers of heads",),
    "esm": ("queries are scaled by head_dim ** -0.5 before the rotation",),
    "phimoe": ("transformers never uses long_factor; the model's own code does, and so does this spec",),
    "hunyuan_v1_dense": ("q and k are normalised after the rotation",),
    "hunyuan_v1_moe": ("q and k are normalised after the rotation",),
    "hunyuan_vl_text": ("q and k are normalised after the rotation",
                        "the members of a pair follow different axes, so that image tokens are sheared, not rotated"),
    "llama4_text": ("q and k are L2-normalised after the rotation where use_qk_norm is set",),
    "minimax_m3_vl_text": ("transformers reads partial_rotary_factor only: without it, it turns all channels",),
    "mistral_large4_text": ("layers that take keys from another layer (kv_source_layers) rotate q only",),
    "muse_glimmer_assistant": ("queries stand at the last positions of the keys",),
    "nanochat": ("q and k are normalised after the rotation",),
    "timesfm2_5": ("q and k are normalised after the rotation", "positions of padding may be negative"),
}  # fmt: skip
SWITCHED = {
    "use_logn_attn": "queries beyond seq_length are scaled by log(position) / log(seq_length)",
}
ROTARY_VALUE = ("roformer", "roformer_v2")
TARGETS = {"deepseek_v4": ("q", "k", "v", "output")}  # one latent head is key and value


def targets_of(model_type: str, keys: Keys) -> tuple[str, ...]:
    """What is rotated."""
    value = keys.flag("rotary_value")
    if value and model_type not in ROTARY_VALUE:
        raise ValueError(f"rotary_value is true, but the code of {model_type} does not read it; remove the key")
    keys.became("v is rotated like q and k" if value else "off", "rotary_value")
    return ("q", "k", "v") if value else TARGETS.get(model_type, ("q", "k"))


def notes_of(model_type: str, keys: Keys, layers: list[RotarySpec | None]) -> tuple[str, ...]:
    notes: list[str] = list(NOTES.get(model_type, ()))
    if model_type == "chatglm" and not any(spec is not None and spec.blocks > 1 for spec in layers):
        notes.clear()
    for name, text in SWITCHED.items():
        if keys.flag(name):
            notes.append(text)
        keys.became(text if keys.flag(name) else "off", name)
    if any(spec is not None and isinstance(spec.scaling, DynamicNTK) for spec in layers):
        notes.append("transformers keeps the base of the longest sequence so far; this spec goes by seq_len alone")
    if model_type in LISTED_NOPE and any(spec is None for spec in layers):
        notes.append("some attention layers do not rotate (NoPE)")
    return tuple(notes)
