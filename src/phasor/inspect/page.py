"""One screen about a model: where each config key went, what turns, how far it reaches, how exact it is."""

from collections.abc import Sequence
from typing import Any

from ..configs import ModelRotary
from ..spec import RotarySpec
from .numbers import FARTHEST, SpecFacts, spec_facts
from .text import decay_line, regime_line, strip, wavelength_line

FARTHEST_EXACT = 2**31  # beyond, exact angles are still right, but to less than 2.5e-7
UNSTATED_MAXIMUM = 4096  # where a config states no maximum length, figures and errors are given for this one


def model_facts(model: ModelRotary, seq_len: int | None = None) -> list[SpecFacts]:
    """Facts of each distinct rotation of a model, in order of first use.

    Length-dependent scalings are taken at ``seq_len``, by default at the model's maximum length.
    """
    length = min(seq_len or model.max_position or UNSTATED_MAXIMUM, FARTHEST_EXACT)
    return [
        spec_facts(spec, length, length if spec.length_dependent else None, model.max_position)
        for spec in model.distinct
    ]


def to_dict(model: ModelRotary, facts: Sequence[SpecFacts]) -> dict[str, Any]:
    """Everything the page says, as plain JSON data."""
    specs = list(model.distinct)
    return {
        "model_type": model.model_type,
        "part": model.part,
        "parts": list(model.parts),
        "max_position": model.max_position,
        "num_heads": model.num_heads,
        "num_kv_heads": model.num_kv_heads,
        "softmax_factor": model.softmax_factor,
        "notes": list(model.notes),
        "sources": model.sources,
        "layer_types": list(model.layer_types),
        "layers": [None if spec is None else specs.index(spec) for spec in model.layers],
        "rotations": [fact.to_dict() for fact in facts],
    }


def page(model: ModelRotary, facts: Sequence[SpecFacts]) -> str:
    """The page as text, at most 100 columns wide where the config's own words allow it."""
    lines = [*_model_lines(model), ""]
    for n, fact in enumerate(facts, start=1):
        title = f"rotation {n}" if len(facts) > 1 else "rotation"
        lines += [_row(title, _layers_of(model, fact.spec)), *_fact_lines(fact), ""]
    return "\n".join(lines).rstrip()


def _row(label: str, text: str) -> str:
    return f"{label:<13}{text}"


def _model_lines(model: ModelRotary) -> list[str]:
    rotated = sum(layer is not None for layer in model.layers)
    heads = f"{model.num_heads} query heads, {model.num_kv_heads} key heads"
    maximum = f"{model.max_position:,} positions" if model.max_position else "no maximum length stated"
    lines = [_row("model", f"{model.model_type}, {rotated} of {len(model.layers)} layers rotate, {heads}, {maximum}")]
    if model.parts:
        lines.append(_row("part", f"{model.part or 'the top level'}, out of {', '.join(model.parts)}"))
    label = "source"
    for key, became in model.sources.items():
        lines.append(_row(label, f"{key} → {became}"))
        label = ""
    if len(model.distinct) > 1 or rotated < len(model.layers):
        specs = list(model.distinct)
        owner = [None if layer is None else specs.index(layer) for layer in model.layers]
        lines.append(_row("layers", f"{strip(owner)}   (number: rotation, ·: none)"))
    if model.softmax_factor != 1.0:
        lines.append(_row("softmax", f"scale times {model.softmax_factor:.6g}, in the model's attention"))
    lines += [_row("note" if i == 0 else "", note) for i, note in enumerate(model.notes)]
    return lines


def _layers_of(model: ModelRotary, spec: RotarySpec) -> str:
    chosen = model.distinct[spec]
    types = sorted({model.layer_types[i] for i in chosen})
    if len(chosen) == len(model.layers):
        return f"all {len(chosen)} layers"
    return f"{len(chosen)} layers ({', '.join(types)}): {_ranges(chosen)}"


def _ranges(numbers: Sequence[int]) -> str:
    """``0-2, 4, 6-7``; long lists are cut."""
    runs: list[list[int]] = []
    for n in numbers:
        if runs and runs[-1][-1] + 1 == n:
            runs[-1] = [runs[-1][0], n]
        else:
            runs.append([n, n])
    text = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs]
    return ", ".join(text if len(text) <= 8 else [*text[:7], f"… ({len(text) - 7} more)"])


def _fact_lines(fact: SpecFacts) -> list[str]:
    spec = fact.spec
    finite = [w for w in fact.wavelengths if w != float("inf")]
    fast, some = sum(t >= 32 for t in fact.turns), sum(1 <= t < 32 for t in fact.turns)
    lines = [
        _row("  turns", spec.describe()),
        _row("  layout", _layout(spec)),
        _row("  pairs", f"{spec.pairs}; " + _span_of(finite)),
        _row("", wavelength_line(fact) + "  log wavelength by pair"),
        _row(
            "  trained",
            f"{fact.trained_length:,} tokens: {fast} pairs turn 32 times or more, {some} once or more, "
            f"{fact.never_turn} never",
        ),
    ]
    if spec.scaling is not None:
        kinds = ", ".join(f"{fact.count(r)} {r}" for r in ("kept", "blended", "slowed", "stopped") if fact.count(r))
        lines.append(_row("  scaling", f"{spec.scaling.name}: {kinds}" + _at_length(fact)))
        lines.append(_row("", regime_line(fact) + "  █ kept ▒ blended ░ slowed · stopped"))
    if spec.axes.count > 1:
        owner = spec.axes.axis_of_pair(spec.pairs)
        lines.append(_row("  axes", f"{spec.axes.count}: {strip(owner, 'thwxyz' if spec.axes.count == 3 else '0123')}"))
    factor = fact.attention_factor
    lines.append(_row("  magnitude", f"{factor:.6g} on cos and sin: scores of these channels times {factor**2:.6g}"))
    searched = f"never negative below {min(fact.max_position, FARTHEST):,}"
    negative = f"first negative at {fact.first_negative:,}" if fact.first_negative else searched
    lines += [
        _row("  decay", f"mean cosine by distance, log scale; {negative}"),
        _row("", decay_line(fact)),
        _row(
            "  exactness",
            f"float32 angles are off by {fact.float32_error:.1e} at position {fact.max_position - 1:,}, "
            "exact ones by at most 2.5e-7",
        ),
        _row(
            "  table",
            f"{_bytes(fact.table_bytes)} of cos and sin for {fact.max_position:,} positions; "
            f"{_bytes(8 * spec.pairs * spec.axes.count)} of steps replace it",
        ),
    ]
    return lines


def _span_of(wavelengths: Sequence[float]) -> str:
    if not wavelengths:
        return "none turns"
    return f"wavelengths {min(wavelengths):.4g} … {max(wavelengths):.4g} tokens"


def _layout(spec: RotarySpec) -> str:
    start = spec.head_dim - spec.rotary_dim if spec.trailing else 0
    step = 1 if spec.interleaved else spec.pairs
    second = start + 2 if spec.interleaved else start + 1
    kind = "interleaved" if spec.interleaved else "halves"
    return f"{kind}: channel {start} pairs with {start + step}, {second} with {second + step}, …"


def _at_length(fact: SpecFacts) -> str:
    return f", for sequences of {fact.seq_len:,} tokens" if fact.seq_len else ""


def _bytes(count: int) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count:.4g} {unit}"
        count /= 1024  # type: ignore[assignment]
    raise AssertionError
