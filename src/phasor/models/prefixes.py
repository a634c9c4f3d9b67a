"""Where the attentions of a model stand in a checkpoint: the prefix of its layers, and the module of every layer.

One layer is ``layers.0.self_attn`` in a base model, ``model.layers.0.self_attn`` in a causal one, and
``model.language_model.layers.0.self_attn`` or ``language_model.model.layers.0.self_attn`` in a composite one. So
names are matched at their end; what stands before is the prefix, the same for all layers of one part.
"""

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ..rotary.spec import RotarySpec
from .weights import Lacking, Shapes, Weights, missing, named, pieces

Layers = Sequence[RotarySpec | None]


def prefixes(names: Iterable[str], weights: Weights) -> dict[str, dict[str, int]]:
    """Prefix -> the attention modules under it that have q and k, each with the number in its name.

    A checkpoint may have several prefixes: a text model and towers may be named alike.

    >>> names = [f"model.layers.{i}.self_attn.{x}_proj.weight" for i in range(2) for x in "qkvo"]
    >>> prefixes(names, Weights())
    {'model.': {'model.layers.0.self_attn': 0, 'model.layers.1.self_attn': 1}}
    """
    known = dict.fromkeys(names)
    patterns = [_pattern(at, name) for at in weights.attention for rows in weights.rows for name in named(rows, at)]
    modules: dict[str, dict[str, int]] = {}
    for match in (m for name in known for pattern in patterns if (m := pattern.fullmatch(name))):
        if not missing(weights, known, match["attention"]):
            modules.setdefault(match["prefix"], {})[match["attention"]] = int(match["number"])
    return modules


def _pattern(attention: str, name: str) -> re.Pattern[str]:
    before, after = attention.split("{}")
    tail = name.removeprefix(attention)
    middle = rf"{re.escape(before)}(?P<number>\d+){re.escape(after)}"
    return re.compile(rf"(?P<attention>(?P<prefix>(?:.*\.)?){middle}){re.escape(tail)}")


def find_prefix(shapes: Shapes, weights: Weights, layers: Layers, *, heads: int, kv_heads: int) -> str:
    """The prefix under which every layer that rotates (``layers`` of a `phasor.ModelRotary`) has its q and k.

    Of several, the one whose tensors have the widths of these heads, then the one without layers beyond the model's
    own. Raises ``ValueError`` if there is none, naming a tensor that is missing, and if several are left, naming them;
    then give the shapes under one of them alone.

    >>> shapes = {f"model.layers.0.self_attn.{x}_proj.weight": (8, 8) for x in "qk"}
    >>> find_prefix(shapes, Weights(), [RotarySpec(head_dim=4)], heads=2, kv_heads=2)
    'model.'
    """
    places = prefixes(shapes, weights)
    lacking = {prefix: _lacking(shapes, weights, layers, prefix, places.get(prefix, {})) for prefix in places or [""]}
    fitting = [prefix for prefix in places if not lacking[prefix]]
    if len(fitting) == 1:
        return fitting[0]
    wide = [p for p in fitting if all(_wide(weights, shapes, at, layers, heads, kv_heads) for at in places[p])]
    own = [prefix for prefix in wide if max(places[prefix].values()) < len(layers)]
    chosen = own or wide
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        got = f"got it under {', '.join(map(repr, chosen))}; give the shapes under one of them alone"
        raise ValueError(f"shapes must have one model with {weights.attention[0]}, {got}")
    nearest = min(lacking.values(), key=len)[0]
    raise Lacking(
        f"shapes must have q and k of all {len(layers)} layers that rotate, and {nearest} is missing", nearest
    )


def _lacking(names: Shapes, weights: Weights, layers: Layers, prefix: str, modules: dict[str, int]) -> list[str]:
    """The tensors that are missing under a prefix for its layers to be all that rotate."""
    if "q" in weights.may_lack:
        return []
    if weights.stacks == "each":
        rotating = [i for i, spec in enumerate(layers) if spec is not None]
        wanted = [at for i in rotating for a in weights.attention if (at := f"{prefix}{a.format(i)}") not in modules]
    else:
        stacks = {attention: len(_stack(modules, prefix, attention)) for attention in weights.attention}
        wanted = [f"{prefix}{attention.format(0)}" for attention, size in stacks.items() if not size]
        if weights.stacks == "after" and len(modules) < len(layers) and not wanted:
            wanted = [f"{prefix}{attention.format(size)}" for attention, size in stacks.items()][-1:]
    return [missing(weights, names, at) or at for at in wanted]


def _stack(modules: dict[str, int], prefix: str, attention: str) -> list[str]:
    """The modules of one stack of layers."""
    return [at for at, number in modules.items() if at == f"{prefix}{attention.format(number)}"]


def _wide(weights: Weights, shapes: Shapes, at: str, layers: Layers, heads: int, kv_heads: int) -> bool:
    """Whether an attention has the heads of some layer."""
    for spec in {spec for spec in layers if spec is not None}:
        with suppress(ValueError):
            layout = pieces(weights, spec, shapes, at, heads=heads, kv_heads=kv_heads)
            if any(len(piece.starts) == heads for piece in layout if piece.kind == "q"):
                return True
    return False


def attentions(names: Iterable[str], weights: Weights, layers: Layers, prefix: str) -> dict[str, RotarySpec]:
    """Every attention module under ``prefix`` that rotates -> its spec.

    Layers beyond the model's own (those that predict further tokens) rotate as the others do if these are all alike;
    otherwise ``ValueError`` says that the config does not describe them.

    >>> names = [f"layers.{i}.self_attn.{x}_proj.weight" for i in range(2) for x in "qk"]
    >>> list(attentions(names, Weights(), [None, RotarySpec(head_dim=4)], ""))
    ['layers.1.self_attn']
    """
    modules = prefixes(names, weights).get(prefix, {})
    first = _stack(modules, prefix, weights.attention[0])
    specs: dict[str, RotarySpec] = {}
    for at, number in sorted(modules.items(), key=lambda pair: pair[1]):
        layer = number + (len(first) if weights.stacks == "after" and at not in first else 0)
        if layer >= len(layers) and len(set(layers)) > 1:
            beyond = f"names must have no layer beyond the {len(layers)} of the config, which are not alike"
            raise ValueError(f"{beyond}, got {at}; leave it out")
        spec = layers[min(layer, len(layers) - 1)]
        if spec is not None:
            specs[at] = spec
    return specs
