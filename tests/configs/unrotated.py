"""Which layers of a transformers model do not rotate, by the conditions in its code."""

import inspect
import re
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

from conformance.theirs import code_of

# Switches of a whole model, as its code asks them.
OFF: dict[str, Callable[[Any], bool]] = {
    "ClvpEncoderConfig": lambda c: not c.use_rotary_embedding,
    "EsmConfig": lambda c: c.position_embedding_type != "rotary",
    "FalconConfig": lambda c: bool(c.alibi),
    "GraniteMoeHybridConfig": lambda c: c.position_embedding_type != "rope",
    "SaProtConfig": lambda c: c.position_embedding_type != "rotary",
    "SeamlessM4TConfig": lambda c: c.position_embeddings_type != "rotary",
    "Wav2Vec2BertConfig": lambda c: c.position_embeddings_type != "rotary",
    "Wav2Vec2ConformerConfig": lambda c: c.position_embeddings_type != "rotary",
    "Zamba2Config": lambda c: not c.use_mem_rope,
}


def _listed(config: Any, layer: int) -> bool:
    return bool(config.no_rope_layers[layer])


def _sliding_only(config: Any, layer: int) -> bool:
    return config.layer_types[layer] == "sliding_attention" and config.sliding_window is not None


def _sliding_if_any(config: Any, layer: int) -> bool:
    return config.sliding_window is None or config.layer_types[layer] == "sliding_attention"


def _own_base(config: Any, layer: int) -> bool:
    return bool(config.layer_rope_theta[layer])


LAYERS: dict[str, Callable[[Any, int], bool]] = {
    "AfmoeConfig": lambda c, layer: c.layer_types[layer] == "sliding_attention",
    "BeamConfig": lambda c, layer: c.rope_parameters[c.layer_types[layer]] is not None,
    "Cohere2Config": _sliding_only,
    "Cohere2MoeConfig": _sliding_only,
    "Exaone4Config": _sliding_if_any,
    "ExaoneMoeConfig": _sliding_if_any,
    "FlintConfig": _sliding_only,
    "GraniteMoeSWAConfig": _own_base,
    "GraniteSWAConfig": _own_base,
    "Kolibri1Config": _sliding_if_any,
    "Llama4TextConfig": _listed,
    "MistralLarge4TextConfig": _listed,
    "MllamaTextConfig": lambda c, layer: layer not in c.cross_attention_layers,
    "MuseGlimmerTextConfig": _own_base,
    "MuseSparkTextConfig": _own_base,
    "SmolLM3Config": _listed,
}
# Code in which some layers are no attention, or get their cos and sin from outside.
MIXED = re.compile(
    r"linear_attn|[Mm]amba|ShortConv|short_conv|Recurrent|DeltaNet|lightning|no_rope|use_rope"
    r"|position_embeddings is not|self\.sliding_window is|is_kda|block_type|hybrid"
    r"|rope_parameters\[layer_type\] is None"
)
WITHOUT = ("conv", "linear_attention", "mamba", "recurrent")


def switched_off(config: Any) -> bool:
    """Whether nothing of a model rotates."""
    name = type(config).__name__
    if name in OFF and OFF[name](config):
        return True
    layers = getattr(config, "num_hidden_layers", None)
    return isinstance(layers, int) and layers > 0 and all(rotates(config, layer) is False for layer in range(layers))


def rotates(config: Any, layer: int) -> bool | None:
    """Whether the attention of a layer rotates q and k; None where that is not known."""
    name, types = type(config).__name__, getattr(config, "layer_types", None)
    if name in OFF and OFF[name](config):
        return False
    if name in LAYERS:
        try:
            return LAYERS[name](config, layer)
        except IndexError:
            return None
    if not mixed(type(config)):
        return True
    return False if isinstance(types, list) and layer < len(types) and types[layer] in WITHOUT else None


@cache
def mixed(cls: type) -> bool:
    names = {one.__module__ for found in code_of(cls.__name__) for one in found}
    names.add(cls.__module__.replace("configuration_", "modeling_"))
    texts = [inspect.getsource(sys.modules[name]) for name in names if name in sys.modules]
    return not texts or any(MIXED.search(text) for text in texts)
