"""The rows of the page about one rotation: what rotates, how far it reaches, how exact it is; pictures in signs."""

import math
from collections.abc import Sequence

from ...rotary.spec import RotarySpec
from ...support.number_text import size_text
from .numbers import FARTHEST, SpecFacts, lowest_decay

_BLOCKS = "▁▂▃▄▅▆▇█"
REGIME_SIGNS = {"kept": "█", "blended": "▒", "slowed": "░", "stopped": "·"}

# How the model's own code forms angles, by the spec's ``angles``, and where it rounds cos and sin, by ``tables``.
ANGLES = {
    "float32": "float32 angles",
    "float64": "float64 angles",
    "float32_exp": "float32 angles, of a ladder by exp",
    "float64_rounded": "float64 angles rounded to float32",
}
TABLES = {
    "activation": "cos and sin rounded to the activations' dtype, multiplied in it",
    "float32": "cos and sin in float32, multiplied in it",
    "rounded": "cos and sin rounded to the activations' dtype, multiplied in float32",
    "promoted": "cos and sin in float32, multiplied in it; the result stays float32",
    "float64": "cos and sin widened to float64, multiplied in it",
}


def row(label: str, text: str) -> str:
    return f"{label:<13}{text}"


def axis_names(count: int) -> Sequence[str]:
    """A name for each coordinate, where nothing was seen of them: with three, they are time, height and width."""
    return "thw" if count == 3 else "0123456789"


def picture_width(columns: int) -> int:
    """Signs in a line of a picture, beside the label of its row and a word behind it.

    >>> picture_width(100), picture_width(60)
    (64, 29)
    """
    return max(16, min(64, columns - 31))


def fact_lines(
    fact: SpecFacts, own_angles: str, width: int = 64, published: bool = False, axes: Sequence[str] = ()
) -> list[str]:
    """Everything about one rotation, in a model whose own code forms its angles in ``own_angles``.

    ``published``: the trained length is the published one; else it is the scaling's, or the one that is declared.
    ``axes``: what each coordinate counts, where that was seen.
    """
    names, factor = axes or axis_names(fact.spec.axes.count), fact.attention_factor
    return [
        row("  rotates", fact.spec.describe()),
        row("  layout", _layout(fact.spec)),
        *_speed_lines(fact, width, published),
        *_axes_lines(fact.spec, width, names),
        row("  magnitude", f"{factor:.6g} on cos and sin: scores of these channels times {factor**2:.6g}"),
        *_decay_lines(fact, width, names),
        *_exactness_lines(fact, own_angles),
        row("  table", _table(fact)),
    ]


def trained_is_stated(fact: SpecFacts, published: bool) -> bool:
    """Whether the trained length is a published one or the scaling's, and not just the one that is declared."""
    return published or bool(fact.spec.scaling and fact.spec.scaling.trained_length)


def unit(spec: RotarySpec) -> str:
    """What positions count."""
    if spec.coordinates == "real":
        return "units of a coordinate"
    return "tokens" if spec.axes.count == 1 else "steps of a coordinate"


def _speed_lines(fact: SpecFacts, width: int, published: bool) -> list[str]:
    spec = fact.spec
    finite = [w for w in fact.wavelengths if w != float("inf")]
    span = f"wavelengths {min(finite):.4g} … {max(finite):.4g} {unit(spec)}" if finite else "none rotates"
    lines = [row("  pairs", f"{spec.pairs}; {span}"), row("", wavelength_line(fact, width) + "  log wavelength")]
    if spec.learned:
        lines.append(row("", "a trained log-scale multiplies the frequencies; all numbers here are without it"))
    if fact.trained_length is not None:
        seen = min(fact.trained_length, fact.window or fact.trained_length)
        fast, some = sum(t >= 32 for t in fact.turns), sum(1 <= t < 32 for t in fact.turns)
        counts = f"{fast} pairs complete 32 turns or more, {some} one or more, {fact.never_turn} none"
        before = ", before scaling" if spec.scaling and spec.scaling.trained_length else ""
        what = f"{seen:,} tokens" if seen == fact.trained_length else f"{seen:,} tokens, the window"
        lines.append(
            row("  trained" if trained_is_stated(fact, published) else "  declared", f"{what}{before}: {counts}")
        )
    if spec.scaling is not None:
        kinds = ", ".join(f"{fact.count(r)} {r} {sign}" for r, sign in REGIME_SIGNS.items() if fact.count(r))
        at_length = f", for sequences of {fact.seq_len:,} tokens" if fact.seq_len else ""
        lines.append(row("  scaling", f"{spec.scaling.name}: {kinds}{at_length}"))
        lines.append(row("", regime_line(fact, width)))
    return lines


def _axes_lines(spec: RotarySpec, width: int, names: Sequence[str]) -> list[str]:
    count = spec.axes.count
    if count == 1:
        return []
    lines = []
    for label, axes in (("axes", spec.axes), ("second", spec.second)):
        if axes is not None:
            owner = axes.axis_of_pair(spec.pairs)
            shares = ", ".join(f"{names[a]} rotates {owner.count(a)}" for a in range(count))
            whose = "of each pair's second member" if label == "second" else "by pair"
            lines.append(row(f"  {label}", f"{count} coordinates, {whose}: {shares}"))
            lines += [row("", piece) for piece in wrapped(strip(owner, [name[0] for name in names]), width)]
    return lines


def _decay_lines(fact: SpecFacts, width: int, names: Sequence[str]) -> list[str]:
    spec = fact.spec
    first = "1/64 to " if spec.coordinates == "real" else "up to "
    inside = ", the window" if fact.window is not None and fact.window <= fact.max_position else ""
    text = f"lowest mean cosine by distance {first}{fact.farthest:,}{inside}, log scale"
    if spec.coordinates == "integer":
        searched = f"never negative below {min(fact.farthest + 1, FARTHEST):,}"
        text += f"; first negative at {fact.first_negative:,}" if fact.first_negative else f"; {searched}"
    lines = [row("  decay", text)]
    for line, moved in decay_lines(fact, width).items():
        who = ["together" if a is None else f"{names[a]} alone" for a in moved]
        lines.append(row("", line if spec.axes.count == 1 else f"{line}  {', '.join(who)}"))
    return lines


def _exactness_lines(fact: SpecFacts, own_angles: str) -> list[str]:
    real = fact.spec.coordinates == "real"
    place = f"coordinate {fact.max_position:,}" if real else f"position {fact.max_position - 1:,}"
    off = "are" if own_angles in ("float32", "float32_exp") else "would be"
    exact = "exact ones (in float64)" if real or fact.spec.learned else "exact ones"
    return [
        row(
            "  exactness", f"float32 angles {off} off by {fact.float32_error:.1e} at {place}, {exact} by at most 2.5e-7"
        ),
        row("  own code", f"{ANGLES[own_angles]}, {TABLES[fact.spec.tables]}"),
    ]


def _table(fact: SpecFacts) -> str:
    spec = fact.spec
    if spec.axes.count == 1 and spec.coordinates == "integer" and not spec.learned:
        text = f"{size_text(fact.table_bytes)} of cos and sin for {fact.max_position:,} positions"
        return f"{text}; {size_text(8 * spec.pairs)} of steps replace it"
    members = 1 if spec.second is None else 2
    text = f"{size_text(2 * 4 * spec.pairs * members)} of cos and sin per token"
    if spec.coordinates == "real" or spec.learned:
        return text
    return f"{text}; {size_text(8 * spec.pairs * spec.axes.count * members)} of steps replace any table"


def _layout(spec: RotarySpec) -> str:
    start = spec.head_dim - spec.rotary_dim if spec.trailing else 0
    step = 1 if spec.interleaved else spec.pairs // spec.blocks
    second = start + (2 if step == 1 else 1)
    kind = "interleaved" if spec.interleaved else "halves" if spec.blocks == 1 else f"halves in {spec.blocks} blocks"
    text = f"{kind}: channel {start} pairs with {start + step}, {second} with {second + step}, …"
    if spec.permuted:
        half = spec.pairs
        text += f"; written to {start} and {start + half}, …"
    return text


def sparkline(values: Sequence[float], low: float | None = None, high: float | None = None) -> str:
    """Values as blocks between ``low`` and ``high``, by default their smallest and largest.

    >>> sparkline([0, 1, 2, 3])
    '▁▃▅█'
    """
    if not values:
        return ""
    low, high = min(values) if low is None else low, max(values) if high is None else high
    span = (high - low) or 1.0
    return "".join(_BLOCKS[int((v - low) / span * (len(_BLOCKS) - 1))] for v in values)


def wavelength_line(facts: SpecFacts, width: int = 64) -> str:
    """log wavelength per pair; stopped pairs as dots."""
    chosen = _thin(facts.wavelengths, width)
    finite = [math.log(w) for w in chosen if math.isfinite(w)]
    blocks = iter(sparkline(finite))
    return "".join(next(blocks) if math.isfinite(w) else "·" for w in chosen)


def regime_line(facts: SpecFacts, width: int = 64) -> str:
    """What the scaling does to each pair: kept █, blended ▒, slowed ░, stopped ·"""
    return "".join(REGIME_SIGNS[r] for r in _thin(facts.regimes, width))


def decay_lines(facts: SpecFacts, width: int = 64) -> dict[str, list[int | None]]:
    """The lowest mean cosine in each stretch of distances, on one scale.

    A line -> the axes along which it holds alone, None for all together.
    """
    moved = [None, *range(facts.spec.axes.count)] if facts.spec.axes.count > 1 else [None]
    curves = [lowest_decay(facts, width, axis) for axis in moved]
    low = min(map(min, curves))
    lines: dict[str, list[int | None]] = {}
    for axis, curve in zip(moved, curves, strict=True):
        lines.setdefault(sparkline(curve, low, 1.0), []).append(axis)
    return lines


def strip(owner: Sequence[int | None], signs: Sequence[str] = "123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") -> str:
    """One sign per element, a dot for None.

    >>> strip([0, 0, 1, None])
    '112·'
    """
    return "".join("·" if o is None else signs[o % len(signs)] for o in owner)


def wrapped(line: str, width: int = 64) -> list[str]:
    """A long line of signs in pieces, none left out.

    >>> wrapped("aabbc", 2)
    ['aa', 'bb', 'c']
    """
    return [line[i : i + width] for i in range(0, len(line), width)]


def _thin(values: Sequence, width: int) -> list:  # type: ignore[type-arg]
    if len(values) <= width:
        return list(values)
    return [values[i * len(values) // width] for i in range(width)]
