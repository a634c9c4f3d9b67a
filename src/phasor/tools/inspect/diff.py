"""Where two configs disagree: in which layers, from which position on, and in what else they do with positions."""

from typing import Any

from ...models.configs import ModelRotary
from ...rotary.spec import RotarySpec
from ...support.number_text import ranges
from ...support.schemes import brief
from .compare import compare_lengths
from .page import temperatures
from .rows import row
from .view import ConfigView

BESIDE = ("softmax_factor", "targets", "heads", "prefix_tokens", "suffix_tokens")  # what a model adds to its layers


def diff(a: ConfigView, b: ConfigView, seq_len: int | None = None) -> dict[str, Any]:
    """Where the first models shown of two configs disagree, as plain JSON data.

    ``same`` is about these two models; ``other_parts`` says of every further part by its path whether it is the same.

    >>> from phasor.inspect import read_view
    >>> llama = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> found = diff(read_view(llama), read_view({**llama, "rope_theta": 500000.0}))
    >>> found["same"], found["findings"][0]["fields"]
    (False, {'base': ['10000.0', '500000.0']})
    """
    found = _diff_models(a.shown[0], b.shown[0], seq_len)
    mine, theirs = _further(a), _further(b)
    parts = {path: "only in the first" for path in mine if path not in theirs}
    parts |= {path: "only in the second" for path in theirs if path not in mine}
    for path in (path for path in mine if path in theirs):
        parts[path] = "same" if _diff_models(mine[path], theirs[path], seq_len)["same"] else "differs"
    return {**found, "other_parts": parts}


def diff_lines(found: dict[str, Any]) -> list[str]:
    """What `diff` found, for people.

    >>> diff_lines({"parts": ["", ""], "layers": [2, 1], "beside": {}, "findings": [], "other_parts": {}})
    ['layers       2 in the first, 1 in the second; the common ones are compared']
    """
    lines = []
    if any(found["parts"]):
        lines.append(row("part", "  |  ".join(part or "(top level)" for part in found["parts"])))
    mine, theirs = found["layers"]
    if mine != theirs:
        lines.append(row("layers", f"{mine} in the first, {theirs} in the second; the common ones are compared"))
    lines += [row("model", f"{name}: {one}  |  {other}") for name, (one, other) in found["beside"].items()]
    for finding in found["findings"]:
        said = [*finding["says"], *(f"{name}: {one}  |  {other}" for name, (one, other) in finding["fields"].items())]
        label = f"layers {ranges(finding['layers'])}"
        if len(label) > 12:
            said.insert(0, label.removeprefix("layers "))
        lines += [row("layers" if len(label) > 12 else label, said[0]), *(row("", text) for text in said[1:])]
    lines += [row("other part", f"{path}: {what}") for path, what in found["other_parts"].items()]
    return lines


def _further(whole: ConfigView) -> dict[str, ModelRotary]:
    """The models of a config beside the first one shown."""
    named = {model.part: model for model in whole.shown[1:]}
    return named | {path: what for path, what in whole.others.items() if isinstance(what, ModelRotary)}


def _diff_models(a: ModelRotary, b: ModelRotary, seq_len: int | None) -> dict[str, Any]:
    groups: dict[Any, list[int]] = {}
    for i, pair in enumerate(zip(a.layers, b.layers, strict=False)):
        groups.setdefault(pair, []).append(i)
    length = seq_len or max(a.max_position or 1, b.max_position or 1)
    findings = [{"layers": layers, **_finding(x, y, length)} for (x, y), layers in groups.items()]
    beside = {name: [getattr(a, name), getattr(b, name)] for name in BESIDE if getattr(a, name) != getattr(b, name)}
    if a.temperatures != b.temperatures:
        beside["temperatures"] = [_temperatures(a), _temperatures(b)]
    return {
        "same": len(a.layers) == len(b.layers) and not beside and all(f["same"] for f in findings),
        "parts": [a.part, b.part],
        "layers": [len(a.layers), len(b.layers)],
        "beside": beside,
        "findings": findings,
    }


def _temperatures(model: ModelRotary) -> str:
    said = [f"{brief(scheme)} in layers {ranges(layers)}" for scheme, layers in temperatures(model).items()]
    return ", ".join(said) or "none"


def _finding(first: RotarySpec | None, second: RotarySpec | None, length: int) -> dict[str, Any]:
    if first is None or second is None:
        says = (
            "neither rotates" if first is second else f"only the {'second' if first is None else 'first'} rotates here"
        )
        return {"says": [says], "same": first is second, "fields": {}}
    results = compare_lengths(first, second, length)
    apart = next((r for r in results if r.pair is not None), results[-1])
    return {
        "says": [r.describe() for r in results],
        "same": all(r.same for r in results),
        "pair": apart.pair,
        "position": apart.position,
        "fields": {name: [str(v) for v in values] for name, values in apart.fields.items()},
    }
