"""Channels per head of every layer, where layers differ."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .keys import ROPE_WORDS, Keys, agreed, is_dict, is_size

if TYPE_CHECKING:
    from .text_row import Facts

LATENT = ("qk_nope_head_dim", "qk_rope_head_dim")
LARGEST = 2**12  # channels of a head


@dataclass(frozen=True)
class Head:
    """The channels of a layer's heads; ``turned``: how many of them turn, where latent attention says so."""

    channels: int
    turned: int | None = None


HeadsRule = Callable[[Keys, tuple[str, ...], list[Head]], list[Head]]


def read_heads(facts: "Facts", keys: Keys, words: tuple[str, ...], head_dim: int) -> list[Head]:
    """The heads of each layer."""
    single = _single_layers(keys, len(words))
    heads = [Head(head_dim) if facts.mla is None else _latent(facts, keys)] * len(words)
    if single is None:
        return heads if facts.heads is None else facts.heads(keys, words, heads)
    for i, settings in single.items():
        heads[i] = _own(i, settings, heads[i])
    return heads


def wider_full(default: int) -> HeadsRule:
    """Layers with full attention have ``global_head_dim`` channels."""

    def rule(keys: Keys, words: tuple[str, ...], heads: list[Head]) -> list[Head]:
        wide = keys.size("global_head_dim", most=LARGEST)
        keys.explain(f"head_dim {wide} of full_attention layers", "global_head_dim")
        if wide is None:
            keys.sources[keys.places[0][0] + "global_head_dim"] = f"not in config: its class's default, {default}"
        return [Head(wide or default) if word == "full_attention" else h for word, h in zip(words, heads, strict=True)]

    return rule


def _latent(facts: "Facts", keys: Keys) -> Head:
    """Latent attention: unrotated channels, then rotated ones."""
    sizes = []
    for name, default in zip(LATENT, facts.mla or (), strict=True):
        size = keys.size(name, most=LARGEST)
        if size is None:
            keys.sources[keys.places[0][0] + name] = f"not in config: {facts.config}'s default, {default}"
        sizes.append(default if size is None else size)
    keys.explain(f"head_dim {sum(sizes)}, the last {sizes[1]} channels turn", *LATENT)
    agreed([("qk_nope_head_dim + qk_rope_head_dim", sum(sizes)), *keys.found("qk_head_dim")])
    keys.explain(f"head_dim {sum(sizes)}", "qk_head_dim")
    if facts.interleave_key and (stated := keys.size("head_dim")) not in (None, sizes[1], sum(sizes)):
        raise ValueError(f"head_dim is {stated}, but qk_rope_head_dim says that {sizes[1]} channels turn; remove it")
    keys.explain("no effect: latent attention has its own widths", "head_dim")
    return Head(sum(sizes), sizes[1])


def _single_layers(keys: Keys, count: int) -> dict[int, dict[str, Any]] | None:
    """``per_layer_config``: what single layers have otherwise, by their number."""
    given = keys.get("per_layer_config", check=is_dict)
    keys.explain("head_dim of single layers", "per_layer_config")
    found = {}
    for index, settings in (given or {}).items():
        if not str(index).isdecimal() or int(index) >= count:
            raise ValueError(f"per_layer_config has the key {index!r}; it must be the number of a layer")
        is_dict(f"per_layer_config.{index}", settings)
        for name, value in settings.items():
            if value is not None and name not in LATENT and ROPE_WORDS.search(str(name)):
                said = name if str(name).isprintable() else repr(name)
                raise ValueError(f"per_layer_config.{index}.{said} is not understood; remove it if it has no effect")
        found[int(index)] = settings
    return None if given is None else found


def _own(layer: int, settings: dict[str, Any], head: Head) -> Head:
    def size(name: str, default: int) -> int:
        value = settings.get(name)
        if value is not None:
            is_size(f"per_layer_config.{layer}.{name}", value, LARGEST)
        return int(default if value is None else value)

    if head.turned is None:
        return Head(size("head_dim", head.channels))
    turned = size(LATENT[1], head.turned)
    return Head(size(LATENT[0], head.channels - head.turned) + turned, turned)
