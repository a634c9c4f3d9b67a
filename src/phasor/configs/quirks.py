"""What single families do differently: position types, head widths and bases per layer, notes."""

from ..checks import number
from ..spec import RotarySpec
from .keys import Keys, agreed, is_dict, is_list, is_size
from .layers import LISTED_NOPE
from .others import ALIBI, LEARNED, NOPE
from .parts import no_rotary

GLOBAL_HEAD_DIM = {"gemma4_text", "gemma4_unified_text", "diffusion_gemma_text", "embedding_gemma2_text"}
ROTARY_WORDS = ("rope", "rotary")
REQUIRED_WORD = {"esm": LEARNED, "new": LEARNED, "granitemoehybrid": NOPE}
LAYER_LISTS = {"step3p5": "rope_theta", "ultrabert": "rope_theta", "granite_swa": "layer_rope_theta"}
LAYER_LISTS["granitemoe_swa"] = "layer_rope_theta"


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
    if model_type == "step3p5":
        agreed([("the code of step3p5", ["full_attention"]), *keys.found("yarn_only_types")])
        keys.became("rope_scaling holds for full attention only", "yarn_only_types")


def _chatglm(keys: Keys) -> None:
    if keys.flag("position_encoding_2d"):
        raise ValueError(
            "position_encoding_2d turns two blocks of each head separately, with halves of their own (ChatGLM-6B); "
            "RotarySpec pairs channels across the whole head, so this layout cannot be read"
        )
    if keys.flag("original_rope") is False:
        raise ValueError("original_rope is false: that layout of ChatGLM is not known; describe it with RotarySpec")
    keys.became("interleaved pairs", "original_rope")


def head_widths(model_type: str, keys: Keys, words: tuple[str, ...], head_dim: int) -> list[int]:
    """Channels per head of each layer."""
    widths = [head_dim] * len(words)
    per_layer = keys.get("per_layer_config", check=is_dict)
    if model_type in GLOBAL_HEAD_DIM and per_layer is None:
        wide = keys.size("global_head_dim")
        keys.became(f"head_dim {wide} of full_attention layers", "global_head_dim")
        if wide is None:
            wide = 512
            keys.sources[keys.places[0][0] + "global_head_dim"] = "not in config: the config class's default, 512"
        widths = [wide if word == "full_attention" else head_dim for word in words]
    if (narrow := keys.size("swa_head_dim")) is not None:
        keys.became(f"head_dim {narrow} of sliding_attention layers", "swa_head_dim")
        widths = [narrow if word == "sliding_attention" else w for w, word in zip(widths, words, strict=True)]
    for index, settings in (per_layer or {}).items():
        if not str(index).isdigit() or int(index) >= len(words):
            raise ValueError(f"per_layer_config has the key {index!r}; it must be the number of a layer")
        is_dict(f"per_layer_config.{index}", settings)
        if (own := settings.get("head_dim")) is not None:
            is_size(f"per_layer_config.{index}.head_dim", own)
            widths[int(index)] = own
    keys.became("head_dim of single layers", "per_layer_config")
    return widths


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


def unscaled(model_type: str, keys: Keys, count: int) -> list[bool]:
    """Layers that leave the scaling out (Molmo 2 scales the listed ones only)."""
    listed = keys.wholes("rope_scaling_layers") if model_type == "molmo2_text" else None
    keys.became("the layers that are scaled", "rope_scaling_layers")
    return [listed is not None and i not in listed for i in range(count)]


def temperature(rope: Keys, top: Keys) -> None:
    """Keys that scale queries by position: read here, told in the notes, no part of the rotation."""
    beta = rope.number("llama_4_scaling_beta", at_least=0)
    rope.became(f"queries are scaled by position, beta {beta}", "llama_4_scaling_beta")
    if beta:
        top.sources["llama_4_scaling_beta"] = f"{beta}"
    rope.became("no effect: repeats the length of the config", "max_position_embeddings")


NOTES = {
    "deepseek_v4": ("v is rotated with k (one latent head), and the attention output is rotated back",),
    "esm": ("queries are scaled by head_dim ** -0.5 before the rotation",),
    "roformer": ("its own table is built in float64, so float32 angles differ from it by up to 4e-5",),
    "gptj": ("its code keeps float32 after the rotation",),
    "codegen": ("its code keeps float32 after the rotation",),
    "phimoe": ("transformers never uses long_factor; the model's own code does, and so does this spec",),
    "hunyuan_v1_dense": ("q and k are normalised after the rotation",),
    "hunyuan_v1_moe": ("q and k are normalised after the rotation",),
    "llama4_text": ("q and k are L2-normalised after the rotation where use_qk_norm is set",
                    "layers without rotation scale queries by position (attn_temperature_tuning)"),
    "beam": ("layers without rotation scale queries by position",),
    "deepseek_v32": ("its indexer rotates the first channels, in halves",),
    "axk2": ("its indexer rotates the first channels, in halves",),
    "glm_moe_dsa": ("its indexer rotates the first channels, interleaved",),
    "hy_v4": ("its indexer rotates the last channels, in halves",),
}  # fmt: skip
SWITCHED = {
    "use_logn_attn": "queries beyond seq_length are scaled by log(position) / log(seq_length)",
    "rotary_value": "v is rotated like q and k",
}
PERMUTED = ("axk1", "axk2", "bailing_hybrid", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa",
            "longcat_flash", "mistral4", "youtu")  # fmt: skip


def notes_of(model_type: str, keys: Keys, layers: list[RotarySpec | None]) -> tuple[str, ...]:
    notes: list[str] = list(NOTES.get(model_type, ()))
    if model_type in PERMUTED and any(spec is not None and spec.interleaved for spec in layers):
        notes.append("transformers writes the rotated channels back in halves order; scores are the same")
    if keys.found("llama_4_scaling_beta") or "llama_4_scaling_beta" in keys.sources:
        notes.append("queries are scaled by 1 + beta * ln(1 + floor(position / original_max_position))")
    for name, text in SWITCHED.items():
        if keys.flag(name):
            notes.append(text)
        keys.became(text if keys.flag(name) else "off", name)
    if model_type in LISTED_NOPE and any(spec is None for spec in layers):
        notes.append("some attention layers do not rotate (NoPE)")
    if (indexer := keys.flag("indexer_rope_interleave")) is not None:
        keys.became(f"the indexer's pairs: {'interleaved' if indexer else 'halves'}", "indexer_rope_interleave")
    return tuple(notes)
