"""What an engine rotates and what the model's own code does, layer by layer, and where the two differ."""

from typing import Any

from phasor import RotarySpec
from phasor.support.number_text import ranges
from phasor.tools.inspect.disagreement import compare_lengths
from phasor.tools.inspect.rows import row

from ..engines import load_config, read_as
from .traps import traps


def compare_engine(source: Any, engine: str, flags: str = "") -> dict[str, Any]:
    """The engine's reading of a config and its flags, compared layer by layer, as plain JSON data."""
    config = load_config(source)
    reading = read_as(config.data, engine, flags)
    length = reading.length or config.model.max_position or 4096
    groups: dict[tuple[RotarySpec | None, RotarySpec | None], list[int]] = {}
    for i, pair in enumerate(zip(config.model.layers, reading.model.layers, strict=True)):
        groups.setdefault(pair, []).append(i)
    return {
        "engine": f"{reading.engine} {reading.version}",
        "length": [config.model.max_position, reading.length],
        "softmax": [config.model.softmax_factor, reading.model.softmax_factor],
        "layers": [{"layers": layers, **_group(*pair, length)} for pair, layers in groups.items()],
        "rules": [rule.describe() for rule in reading.rules],
        "warnings": [str(trap) for trap in traps(config.data, engine, flags)],
    }


def _group(model: RotarySpec | None, engine: RotarySpec | None, length: int) -> dict[str, Any]:
    """One rotation of the model's own code and the engine's; None: a layer that does not rotate."""
    texts = {"own": _describe(model, length), "engine": _describe(engine, length)}
    if model is None or engine is None:
        same = model is engine
        return {**texts, "says": ["neither rotates" if same else "only one of both rotates"], "same": same}
    results = compare_lengths(model, engine, length)
    return {**texts, "says": [result.describe() for result in results], "same": all(result.same for result in results)}


def _describe(spec: RotarySpec | None, length: int) -> str:
    return "no rotation" if spec is None else f"{spec.describe()}, factor {spec.attention_factor(length):.6g}"


def comparison_lines(comparison: dict[str, Any]) -> list[str]:
    """The result of `compare_engine`, for people."""
    model, engine = (f"{n:,}" if n else "not stated" for n in comparison["length"])
    lines = [row("engine", comparison["engine"]), row("length", f"the config {model}  |  the engine {engine}")]
    model, engine = (f"{factor:.6g}" for factor in comparison["softmax"])
    if model != engine:
        lines.append(
            row("softmax", f"its scale times {model} by the model's own code  |  times {engine} by the engine")
        )
    for group in comparison["layers"]:
        texts = [f"own code  {group['own']}", f"engine    {group['engine']}", *group["says"]]
        lines += [row("", f"layers {ranges(group['layers'])}"), *(row("", f"  {text}") for text in texts)]
    for label, key in (("rule", "rules"), ("beware", "warnings")):
        lines += [row("" if i else label, text) for i, text in enumerate(comparison[key])]
    return lines
