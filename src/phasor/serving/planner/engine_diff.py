"""What an engine rotates beside what the model's own code does, and where the two part."""

from typing import Any

from ...rotary.spec import RotarySpec
from ...support.number_text import ranges
from ...tools.inspect import compare_lengths
from ...tools.inspect.rows import row
from ..engines import look, read_as
from .traps import traps


def beside(source: Any, engine: str, flags: str = "") -> dict[str, Any]:
    """The engine's reading of a config and its flags, compared layer by layer, as plain JSON data."""
    seen, reading = look(source), read_as(source, engine, flags)
    length = reading.length or seen.model.max_position or 4096
    groups: dict[tuple[RotarySpec | None, RotarySpec | None], list[int]] = {}
    for i, pair in enumerate(zip(seen.model.layers, reading.model.layers, strict=True)):
        groups.setdefault(pair, []).append(i)
    return {
        "engine": f"{reading.engine} {reading.version}",
        "length": [seen.model.max_position, reading.length],
        "softmax": [seen.model.softmax_factor, reading.model.softmax_factor],
        "layers": [{"layers": layers, **_group(own, theirs, length)} for (own, theirs), layers in groups.items()],
        "rules": [rule.describe() for rule in reading.rules],
        "warnings": [str(trap) for trap in traps(source, engine, flags)],
    }


def _group(own: RotarySpec | None, theirs: RotarySpec | None, length: int) -> dict[str, Any]:
    """Specs of the model's own code and of the engine, None where that one does not rotate."""
    both = {"own": _described(own, length), "engine": _described(theirs, length)}
    if own is None or theirs is None:
        only = "only the engine rotates" if own is None else "only the model's own code rotates"
        same = own is None and theirs is None
        return {**both, "says": ["neither rotates" if same else f"{only} here"], "same": same}
    results = compare_lengths(own, theirs, length)
    says = [result.describe() for result in results]
    return {**both, "says": says, "same": all(result.same for result in results)}


def _described(spec: RotarySpec | None, length: int) -> str:
    if spec is None:
        return "no rotation"
    return f"{spec.describe()}, factor {spec.attention_factor(length):.6g}"


def beside_lines(found: dict[str, Any]) -> list[str]:
    """What `beside` found, for people."""
    own, theirs = (f"{n:,}" if n else "not stated" for n in found["length"])
    lines = [row("engine", found["engine"]), row("length", f"the config {own}  |  the engine {theirs}")]
    own, theirs = (f"{factor:.6g}" for factor in found["softmax"])
    if own != theirs:
        lines.append(row("softmax", f"its scale times {own} by the model's own code  |  times {theirs} by the engine"))
    for group in found["layers"]:
        label = f"layers {ranges(group['layers'])}"
        texts = [f"own code  {group['own']}", f"engine    {group['engine']}", *group["says"]]
        lines += [row("", label), *(row("", f"  {text}") for text in texts)]
    lines += [row("rule" if i == 0 else "", text) for i, text in enumerate(found["rules"])]
    return lines + [row("beware" if i == 0 else "", text) for i, text in enumerate(found["warnings"])]
