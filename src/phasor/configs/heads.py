"""Channels per head of every layer, where layers differ."""

from typing import Any

from .family import Family
from .fields import Head
from .keys import ROPE_WORDS, Keys, agreed, is_dict, is_size

GLOBAL_HEAD_DIM = {"gemma4_text", "gemma4_unified_text", "diffusion_gemma_text", "embedding_gemma2_text"}
LATENT = ("qk_nope_head_dim", "qk_rope_head_dim")
SLIDING_LATENT = {"dots3_note_text": (192, 64)}  # default (unrotated, rotated) channels of sliding layers


def read_heads(model_type: str, family: Family, keys: Keys, words: tuple[str, ...], head_dim: int) -> list[Head]:
    """The heads of each layer."""
    single = _single_layers(keys, len(words))
    if family.mla is not None:
        return _latent(model_type, family, keys, words, single)
    widths = [head_dim] * len(words)
    if model_type in GLOBAL_HEAD_DIM and single is None:
        wide = keys.size("global_head_dim")
        keys.became(f"head_dim {wide} of full_attention layers", "global_head_dim")
        if wide is None:
            wide = 512
            keys.sources[keys.places[0][0] + "global_head_dim"] = "not in config: the config class's default, 512"
        widths = [wide if word == "full_attention" else head_dim for word in words]
    if (narrow := keys.size("swa_head_dim")) is not None:
        keys.became(f"head_dim {narrow} of sliding_attention layers", "swa_head_dim")
        widths = [narrow if word == "sliding_attention" else w for w, word in zip(widths, words, strict=True)]
    for i, settings in (single or {}).items():
        widths[i] = _own(i, settings, "head_dim", widths[i])
    return [Head(width) for width in widths]


def _latent(
    model_type: str, family: Family, keys: Keys, words: tuple[str, ...], single: dict[int, dict[str, Any]] | None
) -> list[Head]:
    """Latent attention: unrotated channels, then rotated ones."""
    path = keys.places[0][0]
    sizes = []
    for name, default in zip(LATENT, family.mla or (), strict=True):
        size = keys.size(name)
        if size is None:
            keys.sources[path + name] = f"not in config: {family.config}'s default, {default}"
        sizes.append(default if size is None else size)
    keys.became(f"head_dim {sum(sizes)}, the last {sizes[1]} channels turn", *LATENT)
    agreed([("qk_nope_head_dim + qk_rope_head_dim", sum(sizes)), *keys.found("qk_head_dim")])
    keys.became(f"head_dim {sum(sizes)}", "qk_head_dim")
    keys.became("no effect: latent attention has its own widths", "head_dim")
    pairs = [tuple(sizes)] * len(words)
    if single is None and model_type in SLIDING_LATENT and "sliding_attention" in words:
        narrow = _sliding(keys, SLIDING_LATENT[model_type])
        pairs = [narrow if word == "sliding_attention" else p for p, word in zip(pairs, words, strict=True)]
    for i, settings in (single or {}).items():
        pairs[i] = tuple(_own(i, settings, name, size) for name, size in zip(LATENT, pairs[i], strict=True))
    return [Head(nope + rope, rope) for nope, rope in pairs]


def _sliding(keys: Keys, default: tuple[int, int]) -> tuple[int, int]:
    """Dots 3's first spelling: ``swa_`` before the names; the rotated channels are what the unrotated ones leave."""
    nope, whole = keys.size("swa_qk_nope_head_dim") or default[0], keys.size("swa_head_dim") or sum(default)
    turned = keys.size("swa_qk_rope_head_dim") or whole - nope
    keys.became(f"sliding_attention layers: {nope} + {turned} channels", *("swa_" + name for name in LATENT))
    keys.became(f"sliding_attention layers: {nope} + {turned} channels", "swa_head_dim")
    if turned < 1:
        raise ValueError(f"swa_head_dim must be above swa_qk_nope_head_dim {nope}, got {whole}")
    return nope, turned


def _single_layers(keys: Keys, count: int) -> dict[int, dict[str, Any]] | None:
    """``per_layer_config``: what single layers have otherwise, by their number."""
    given = keys.get("per_layer_config", check=is_dict)
    keys.became("head_dim of single layers", "per_layer_config")
    found = {}
    for index, settings in (given or {}).items():
        if not str(index).isdigit() or int(index) >= count:
            raise ValueError(f"per_layer_config has the key {index!r}; it must be the number of a layer")
        is_dict(f"per_layer_config.{index}", settings)
        for name, value in settings.items():
            if value is not None and name not in LATENT and ROPE_WORDS.search(str(name)):
                raise ValueError(f"per_layer_config.{index}.{name} is not understood; remove it if it has no effect")
        found[int(index)] = settings
    return None if given is None else found


def _own(layer: int, settings: dict[str, Any], name: str, default: int) -> int:
    own = settings.get(name)
    if own is None:
        return default
    is_size(f"per_layer_config.{layer}.{name}", own)
    return int(own)
