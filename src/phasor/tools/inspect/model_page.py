"""One screen about a model: where each config key went, what rotates, how far it reaches, how exact it is."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ...models.configs import ModelRotary
from ...models.published_lengths import published_length
from ...rotary.spec import RotarySpec
from ...rotary.temperature import LearnedLog
from ...support.number_text import ranges
from ...support.schemes import brief, to_data
from .axes_picture import axes_picture
from .numbers import SpecFacts, spec_facts
from .rows import fact_lines, picture_width, row, strip, wrapped

FARTHEST_EXACT = 2**31  # beyond, exact angles are still right, but to less than 2.5e-7

# Where a config states no maximum length, figures and errors are given for these.
UNSTATED_MAXIMUM = 4096
UNSTATED_SIDE = 256  # of an image or video, for positions with several coordinates
REAL_REACH = 1024  # of real coordinates, which no config bounds


def model_facts(model: ModelRotary, seq_len: int | None = None) -> list[SpecFacts]:
    """Facts of each distinct rotation of a model, in order of first use.

    Length-dependent scalings are taken at ``seq_len``, by default at the model's maximum length.

    >>> from phasor import RotarySpec
    >>> toy = ModelRotary(model_type="toy", layers=(RotarySpec(head_dim=8),), layer_types=("attention",), num_heads=1)
    >>> [facts.max_position for facts in model_facts(toy, seq_len=100)]
    [100]
    """
    length = min(seq_len or model.max_position or UNSTATED_MAXIMUM, FARTHEST_EXACT)
    published = published_length(model)
    trained = published.tokens if published else model.max_position

    def reach(spec: RotarySpec) -> int:
        if spec.coordinates == "real":
            return REAL_REACH
        return length if seq_len or model.max_position or spec.axes.count == 1 else UNSTATED_SIDE

    return [
        spec_facts(spec, reach(spec), length if spec.length_dependent else None, trained, window_of(model, layers))
        for spec, layers in model.distinct.items()
    ]


def window_of(model: ModelRotary, layers: tuple[int, ...]) -> int | None:
    """The widest window of these layers; None where one of them sees everything, or nothing is known."""
    windows = [model.windows[i] if model.windows else None for i in layers]
    known = [window for window in windows if window is not None]
    return max(known) if len(known) == len(layers) else None


def to_dict(model: ModelRotary, facts: Sequence[SpecFacts]) -> dict[str, Any]:
    """Everything the page says, as plain JSON data.

    >>> from phasor import RotarySpec
    >>> toy = ModelRotary(model_type="toy", layers=(RotarySpec(head_dim=8),), layer_types=("attention",), num_heads=1)
    >>> to_dict(toy, model_facts(toy))["layers"]  # the first of its rotations
    [0]
    """
    specs, published = list(model.distinct), published_length(model)
    return {
        "model_type": model.model_type,
        "part": model.part,
        "parts": list(model.parts),
        "max_position": model.max_position,
        "trained": published and {"tokens": published.tokens, "source": published.source},
        "num_heads": model.num_heads,
        "num_kv_heads": model.num_kv_heads,
        "heads": model.heads,
        "targets": list(model.targets),
        "prefix_tokens": model.prefix_tokens,
        "suffix_tokens": model.suffix_tokens,
        "softmax_factor": model.softmax_factor,
        "temperatures": [to_data(scheme) for scheme in model.temperatures],
        "own_angles": model.own_angles,
        "notes": list(model.notes),
        "sources": model.sources,
        "layer_types": list(model.layer_types),
        "windows": list(model.windows),
        "grid": dict(model.grid),
        "layers": [None if spec is None else specs.index(spec) for spec in model.layers],
        "rotations": [fact.to_dict() for fact in facts],
    }


def page(
    model: ModelRotary, facts: Sequence[SpecFacts], columns: int = 100, wanted: Mapping[str, float] | None = None
) -> str:
    """The page as text; its pictures fit into ``columns``, its words into 100 where the config's own allow it.

    ``wanted``: the size asked about, tokens along the axes of a picture (`ModelRotary.grid`).

    >>> from phasor import RotarySpec
    >>> toy = ModelRotary(model_type="toy", layers=(RotarySpec(head_dim=8),), layer_types=("attention",), num_heads=1)
    >>> print(page(toy, model_facts(toy)).splitlines()[0])
    model        toy, 1 of 1 layers rotate, 1 query heads, 1 key heads, no maximum stated
    """
    width, published = picture_width(columns), published_length(model) is not None
    lines = [*_model_lines(model, width), ""]
    for n, fact in enumerate(facts, start=1):
        title = f"rotation {n}" if len(facts) > 1 else "rotation"
        chosen = model.distinct[fact.spec]
        axes = tuple(model.grid) if len(model.grid) == fact.spec.axes.count else ()
        lines += [row(title, _layers_of(model, chosen)), *fact_lines(fact, model.own_angles, width, published, axes)]
        if axes:
            lines += axes_picture(fact, model.grid, wanted or {}, width)
        lines.append("")
    return "\n".join(lines).rstrip()


def _model_lines(model: ModelRotary, width: int) -> list[str]:
    rotated = sum(layer is not None for layer in model.layers)
    heads = f"{model.num_heads} query heads, {model.num_kv_heads} key heads"
    maximum = f"{model.max_position:,} positions" if model.max_position else "no maximum stated"
    lines = [row("model", f"{model.model_type}, {rotated} of {len(model.layers)} layers rotate, {heads}, {maximum}")]
    if published := published_length(model):
        lines.append(row("trained", f"with {published.tokens:,} positions [{published.source}]"))
    if model.parts:
        count = f"{len(model.parts)} part" + ("s" if len(model.parts) > 1 else "")
        here = f"{model.part}, one of {count}" if model.part else f"the top level, with {count} inside"
        lines.append(row("part", here))
    lines += _labelled("source", [f"{key} → {became}" for key, became in model.sources.items()])
    if len(model.distinct) > 1 or rotated < len(model.layers):
        specs = list(model.distinct)
        strips = wrapped(strip([None if layer is None else specs.index(layer) for layer in model.layers]), width)
        lines += _labelled("layers", [*strips[:-1], f"{strips[-1]}   (number: rotation, ·: none)"])
    lines += _labelled("rotates", _targets(model))
    if model.softmax_factor != 1.0:
        lines.append(row("softmax", f"scale times {model.softmax_factor:.6g}, in the model's attention"))
    lines += _labelled("queries", [_temperature(model, *group) for group in temperatures(model).items()])
    return lines + _labelled("note", model.notes)


def _labelled(label: str, texts: Sequence[str]) -> list[str]:
    return [row(label if i == 0 else "", text) for i, text in enumerate(texts)]


def _targets(model: ModelRotary) -> list[str]:
    """What is rotated and what passes, where that is not all of q and k."""
    lines = []
    if model.targets != ("q", "k"):
        words = ["the output of attention, back" if t == "output" else t for t in model.targets]
        lines.append(", ".join(words) or "neither q nor k, but what the note says")
    if model.heads is not None:
        lines.append(f"only the first {model.heads} of {model.num_heads} heads")
    for count, which in ((model.prefix_tokens, "first"), (model.suffix_tokens, "last")):
        if count:
            lines.append(f"not the {which} token" if count == 1 else f"not the {which} {count} tokens")
    return lines


def temperatures(model: ModelRotary) -> dict[Any, tuple[int, ...]]:
    """Each different temperature (`phasor.temperature`) -> the layers that use it."""
    groups: dict[Any, tuple[int, ...]] = {}
    for i, scheme in enumerate(model.temperatures):
        if scheme is not None:
            groups[scheme] = (*groups.get(scheme, ()), i)
    return groups


def _temperature(model: ModelRotary, scheme: Any, layers: tuple[int, ...]) -> str:
    grows = "times scale ln(position + 1) + bias, both trained per head"
    if not isinstance(scheme, LearnedLog):
        last = (model.max_position or UNSTATED_MAXIMUM) - 1
        grows = f"times {float(scheme.at(torch.tensor(last))):.4g} at position {last:,}"
    return f"{brief(scheme)}: {grows}; {_layers_of(model, layers)}"


def _layers_of(model: ModelRotary, chosen: tuple[int, ...]) -> str:
    types = sorted({model.layer_types[i] for i in chosen})
    if len(chosen) == len(model.layers):
        return f"all {len(chosen)} layers"
    return f"{len(chosen)} layers ({', '.join(types)}): {ranges(chosen)}"
