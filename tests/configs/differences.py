"""Where phasor's reading of a part and what transformers computes for it differ, in words."""

import copy
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from computed import Ladder, Turning, default_of, ladders
from unrotated import rotates

from conformance.operators import Case, compare
from conformance.walk import quiet
from phasor import ModelRotary, RotarySpec, read_config

# Families whose code picks the layout by a key.
INTERLEAVE = ("AXK1Config", "DeepseekV3Config", "Glm4MoeLiteConfig", "Mistral4Config")
# Families without a module that keeps frequencies: how many channels their code turns.
WIDTHS: dict[str, Callable[[Any], int]] = {
    "CodeGenConfig": lambda c: c.rotary_dim or c.n_embd,
    "GPTJConfig": lambda c: c.rotary_dim or c.n_embd,
    "RoFormerConfig": lambda c: c.hidden_size // c.num_attention_heads,
}
DECODERS = ("SeamlessM4TConfig",)  # whose common names for sizes are those of another part
SIZES: dict[str, Callable[[Any], Any]] = {
    "head_dim": lambda c: getattr(c, "head_dim", None) or c.hidden_size // c.num_attention_heads,
    "num_heads": lambda c: c.num_attention_heads,
    "num_kv_heads": lambda c: c.num_key_value_heads,
    "layers": lambda c: c.num_hidden_layers,
}


def differences(model: ModelRotary, found: Turning, inner: bool) -> Iterator[str]:
    """Nothing if both agree. ``inner``: the part has no config of its own (an indexer), so sizes are not comparable."""
    if not inner:
        yield from _sizes(model, found.config)
    done = set()
    for layer, spec in enumerate(model.layers):
        theirs = None if inner else rotates(found.config, layer)
        words = tuple(one and (one.word, id(one.module)) for one in ladders(found, layer))
        if (spec, theirs, words) in done:
            continue
        done.add((spec, theirs, words))
        if theirs and spec is None and words and not any(words):
            continue  # without parameters for this type of layer transformers cannot run it
        if theirs is not None and theirs != (spec is not None):
            yield f"layer {layer}: {'rotates' if theirs else 'does not rotate'} for transformers"
        elif spec is not None:
            yield from _spec(model, spec, layer, found)


def _spec(model: ModelRotary, spec: RotarySpec, layer: int, found: Turning) -> Iterator[str]:
    config, name = found.config, type(found.config).__name__
    spec = spec.replace(angles=model.own_angles)
    if name in WIDTHS and WIDTHS[name](config) != spec.rotary_dim:
        yield f"rotary_dim {spec.rotary_dim}, theirs {WIDTHS[name](config)}"
    if name in INTERLEAVE and bool(config.rope_interleave) != spec.interleaved:
        yield f"interleaved {spec.interleaved}, theirs {config.rope_interleave}"
    theirs = ladders(found, layer)
    if theirs and all(said := [_ladder(spec, one) for one in theirs]):
        yield f"layer {layer} ({model.layer_types[layer]}): {said[0]}"
    elif theirs and theirs[0] and spec.length_dependent:
        yield from _long(spec, theirs[0])
    elif (spec.axes.count > 1 or not theirs) and spec.pairs <= 4096:
        with quiet():
            outcome = compare(Case(spec, model.layer_types[layer], model, config), torch.float32)
        if outcome.difference is not None and not outcome.close:
            yield f"layer {layer} ({model.layer_types[layer]}): rotated q and k differ by {outcome.difference:.3g}"


def _ladder(spec: RotarySpec, theirs: Ladder | None) -> str:
    if theirs is None:
        return "transformers has no frequencies for this type of layer"
    ours, inv_freq = spec.inv_freq().float(), theirs.inv_freq.float()
    if spec.axes.count > 1:  # a module may keep those of one axis
        ours, inv_freq = ours.unique(), inv_freq.unique()
    if ours.shape != inv_freq.shape:
        return f"{len(ours)} frequencies, theirs {len(inv_freq)}"
    if not torch.equal(ours, inv_freq):
        at = int((ours - inv_freq).abs().argmax())
        return f"frequency {at} is {ours[at].item():.9g}, theirs {inv_freq[at].item():.9g}"
    if abs(spec.attention_factor() - theirs.factor) > 1e-12 * abs(theirs.factor):
        return f"attention factor {spec.attention_factor():.9g}, theirs {theirs.factor:.9g}"
    return ""


def _long(spec: RotarySpec, theirs: Ladder) -> Iterator[str]:
    """The frequencies of a long sequence. transformers forms the dynamic base in float32 there: equal to 1e-4."""
    scaling: Any = spec.scaling
    length = 4 * (getattr(scaling, "original_max_position", None) or scaling.max_position) + 3
    more = {"layer_type": theirs.word} if theirs.word else {}
    module = copy.deepcopy(theirs.module)  # it keeps the frequencies of the longest sequence
    with quiet(), torch.no_grad():
        try:
            module(torch.zeros(1, 1, 4), torch.tensor([[length - 1]]), **more)
        except Exception:
            return
    inv_freq = dict(module.named_buffers())[f"{theirs.word}_inv_freq".lstrip("_")]
    ours = spec.inv_freq(length).float()
    if not torch.allclose(ours, inv_freq, rtol=1e-4, atol=0):
        yield f"at {length} tokens: frequencies {ours[:3].tolist()}, theirs {inv_freq[:3].tolist()}"


def _sizes(model: ModelRotary, config: Any) -> Iterator[str]:
    ours = _ours(model)
    for name in _comparable(type(config)):
        theirs = _theirs(name, config)
        if theirs is not None and ours[name] is not None and ours[name] != theirs:
            yield f"{name} {ours[name]}, theirs {theirs}"


def _ours(model: ModelRotary) -> dict[str, Any]:
    dims = {spec.head_dim for spec in model.distinct}
    return {
        "head_dim": dims.pop() if len(dims) == 1 else None,
        "num_heads": model.num_heads,
        "num_kv_heads": model.num_kv_heads,
        "layers": len(model.layers),
    }


def _theirs(name: str, config: Any) -> Any:
    try:
        return SIZES[name](config)
    except Exception:  # the config has no such size, or one per layer
        return None


@cache
def _comparable(cls: type) -> tuple[str, ...]:
    """The sizes that stand under the common names in the default config of a class."""
    with quiet():
        try:
            config = default_of(cls)
            ours = _ours(read_config(config))
        except Exception:
            return ()
    return tuple(name for name in SIZES if _theirs(name, config) == ours[name] and cls.__name__ not in DECODERS)
