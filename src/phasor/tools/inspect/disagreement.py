"""Where two rotations or two configs disagree: in which field, layer and pair, and from which position on."""

import math
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ...models.configs import ModelRotary
from ...rotary.spec import RotarySpec
from ...support.findings import Difference, Finding
from ...support.number_text import ranges
from ...support.schemes import brief
from .model_page import temperatures
from .rows import row
from .view import ConfigView

THRESHOLD = 0.1  # radians between the two angles of one pair: the point from which the rotations are called different
MODEL_FIELDS = ("softmax_factor", "targets", "heads", "prefix_tokens", "suffix_tokens")  # beside those of its layers
SENTENCES = {
    "layout": "channels are paired differently: they disagree at every position but 0",
    "permuted": "one of them writes its pairs as halves: other tensors, and the same scores if q and k agree",
    "axes": "other axes rotate the pairs: they disagree where a token's coordinates differ (not in text)",
    "second": "the second members of the pairs rotate otherwise: they disagree where coordinates differ",
    "learned": "a trained log-scale changes the frequencies of one of them; it is left out here",
}


@dataclass(frozen=True, kw_only=True)
class Disagreement(Difference):
    """What separates two specs. ``pair`` is the one whose angles differ first (None if all frequencies agree).

    ``position`` is the first at which the angles of that pair differ by `THRESHOLD` radians; real coordinates have no
    next position, there it is the distance from 0, rounded.

    - ``width``: heads have other numbers of channels, or of channels that rotate.
    - ``layout``: channels are paired otherwise, a difference at every position but 0. ``permuted``: one writes halves.
    - ``axes``: other coordinates rotate the pairs, which shows where a token's coordinates differ; ``second``: the same
      of the pairs' second members.
    - ``learned``: a trained log-scale changes the frequencies of one.
    - ``score_ratio``: of the squared attention factors, a difference at every position.
    - ``seq_len``: the length of the sequence compared, for scalings that depend on it.

    >>> a = RotarySpec(head_dim=4)
    >>> compare(a, a.replace(interleaved=True)).describe()
    'channels are paired differently: they disagree at every position but 0'
    """

    position: float | None = None
    fields: dict[str, tuple[Any, Any]]
    width: bool
    layout: bool
    permuted: bool
    axes: bool
    second: bool
    learned: bool
    pairs_apart: int
    score_ratio: float
    seq_len: int | None

    @property
    def same(self) -> bool:
        """Whether both rotate alike at every position (fields may differ in words only)."""
        apart = self.width or self.layout or self.permuted or self.axes or self.second or self.learned
        return not apart and self.pair is None and self.score_ratio == 1.0

    def describe(self) -> str:
        """Sentences for people."""
        where = "" if self.seq_len is None else f" in sequences of {self.seq_len:,} tokens"
        if self.same:
            return f"both rotate alike at every position{where}"
        sentences = []
        if "head_dim" in self.fields:
            sentences.append("heads have {} and {} channels: no tensor fits both".format(*self.fields["head_dim"]))
        elif self.width:
            widths = "{} and {}".format(*self.fields["rotary_dim"])
            sentences.append(f"{widths} channels of a head rotate: they disagree at every position but 0")
        sentences += [text for name, text in SENTENCES.items() if getattr(self, name)]
        if self.pair is not None:
            speeds = "the other way" if "reverse" in self.fields else "at other speeds"
            sentences.append(
                f"{self.pairs_apart} pairs rotate {speeds}{where}: pair {self.pair} is {THRESHOLD:g} rad off "
                f"from position {self.position:,} on"
            )
        if self.score_ratio != 1.0:
            sentences.append(f"scores of the second are {self.score_ratio:.4g} times those of the first{where}")
        return "; ".join(sentences)

    __str__ = describe


def compare(a: RotarySpec, b: RotarySpec, seq_len: int | None = None) -> Disagreement:
    """Compare two specs at one sequence length (None: inside the trained length).

    >>> d = compare(RotarySpec(head_dim=4, base=100.0), RotarySpec(head_dim=4, base=10000.0))
    >>> d.pair, d.position  # 0.1 against 0.01 rad per token: 0.09 apart after one, above 0.1 after two
    (1, 2)
    """
    pair = position = None
    gaps: list[float] = []
    if a.pairs == b.pairs:
        gaps = (_speeds(a, seq_len) - _speeds(b, seq_len)).abs().tolist()
        widest = max(range(len(gaps)), key=gaps.__getitem__)
        if gaps[widest] > 0:
            apart = THRESHOLD / gaps[widest]
            real = "real" in (a.coordinates, b.coordinates)
            pair, position = widest, float(f"{apart:.3g}") if real else math.ceil(apart)
    return Disagreement(
        fields=a.diff(b),
        width=(a.head_dim, a.rotary_dim) != (b.head_dim, b.rotary_dim),
        layout=(a.interleaved, a.trailing, a.blocks) != (b.interleaved, b.trailing, b.blocks),
        permuted=a.permuted != b.permuted,
        axes=a.axes != b.axes,
        second=a.second != b.second,
        learned=a.learned != b.learned,
        pair=pair,
        position=position,
        pairs_apart=sum(g > 0 for g in gaps),
        score_ratio=(b.attention_factor(seq_len) / a.attention_factor(seq_len)) ** 2,
        seq_len=seq_len if a.length_dependent or b.length_dependent else None,
    )


def _speeds(spec: RotarySpec, seq_len: int | None) -> Tensor:
    """Radians per unit of position, with their sign."""
    return spec.inv_freq(seq_len) * spec.position_scale * (-1 if spec.reverse else 1)


def compare_lengths(a: RotarySpec, b: RotarySpec, seq_len: int) -> list[Disagreement]:
    """`compare`, for length-dependent scalings in both regimes: inside the trained length and at ``seq_len``.

    >>> a = RotarySpec(head_dim=4)
    >>> [result.same for result in compare_lengths(a, a, 4096)]  # no scaling, one regime
    [True]
    """
    far = compare(a, b, seq_len)
    return [compare(a, b, 1), far] if far.seq_len is not None and seq_len > 1 else [far]


def diff(a: ConfigView, b: ConfigView, seq_len: int | None = None) -> dict[str, Any]:
    """Where the first models shown of two configs disagree, as plain JSON data.

    ``same`` is about these two models; ``other_parts`` says of every further part by its path whether it is the same.

    >>> from phasor.tools.inspect.view import read_view
    >>> llama = {"model_type": "llama", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}
    >>> data = diff(read_view(llama), read_view({**llama, "rope_theta": 500000.0}))
    >>> data["same"], data["findings"][0]["verdict"], data["findings"][0]["fields"]
    (False, 'wrong', {'base': ['10000.0', '500000.0']})
    """
    ours, theirs = _further_models(a), _further_models(b)
    parts = {path: "only in the first" for path in ours if path not in theirs}
    parts |= {path: "only in the second" for path in theirs if path not in ours}
    for path in (path for path in ours if path in theirs):
        parts[path] = "same" if _diff_models(ours[path], theirs[path], seq_len)["same"] else "differs"
    return {**_diff_models(a.shown[0], b.shown[0], seq_len), "other_parts": parts}


def diff_lines(data: dict[str, Any]) -> list[str]:
    """What `diff` gives, for people.

    >>> diff_lines({"parts": ["", ""], "layers": [2, 1], "models": {}, "findings": [], "other_parts": {}})
    ['layers       2 in the first, 1 in the second; the common ones are compared']
    """
    lines = []
    if any(data["parts"]):
        lines.append(row("part", "  |  ".join(part or "(top level)" for part in data["parts"])))
    ours, theirs = data["layers"]
    if ours != theirs:
        lines.append(row("layers", f"{ours} in the first, {theirs} in the second; the common ones are compared"))
    lines += [row("model", f"{name}: {one}  |  {other}") for name, (one, other) in data["models"].items()]
    for finding in data["findings"]:
        fields = [f"{name}: {one}  |  {other}" for name, (one, other) in finding["fields"].items()]
        label, texts = finding["where"], [*finding["reason"].split("\n"), *fields]
        if len(label) > 12:
            label, texts = "layers", [label.removeprefix("layers "), *texts]
        lines += [row(label if i == 0 else "", text) for i, text in enumerate(texts)]
    return lines + [row("other part", f"{path}: {what}") for path, what in data["other_parts"].items()]


def _further_models(view: ConfigView) -> dict[str, ModelRotary]:
    """The models of a config beside the first one shown."""
    others = {path: model for path, model in view.others.items() if isinstance(model, ModelRotary)}
    return {model.part: model for model in view.shown[1:]} | others


def _diff_models(a: ModelRotary, b: ModelRotary, seq_len: int | None) -> dict[str, Any]:
    groups: dict[Any, list[int]] = {}
    for i, pair in enumerate(zip(a.layers, b.layers, strict=False)):
        groups.setdefault(pair, []).append(i)
    length = seq_len or max(a.max_position or 1, b.max_position or 1)
    findings = [_finding(x, y, layers, length) for (x, y), layers in groups.items()]
    models = {name: [getattr(a, name), getattr(b, name)] for name in MODEL_FIELDS}
    models["temperatures"] = [_temperatures(a), _temperatures(b)]
    models = {name: both for name, both in models.items() if both[0] != both[1]}
    return {
        "same": len(a.layers) == len(b.layers) and not models and all(f["verdict"] == "right" for f in findings),
        "parts": [a.part, b.part],
        "layers": [len(a.layers), len(b.layers)],
        "models": models,
        "findings": findings,
    }


def _temperatures(model: ModelRotary) -> str:
    texts = [f"{brief(scheme)} in layers {ranges(layers)}" for scheme, layers in temperatures(model).items()]
    return ", ".join(texts) or "none"


def _finding(first: RotarySpec | None, second: RotarySpec | None, layers: list[int], length: int) -> dict[str, Any]:
    """The `Finding` about layers that have these two specs, as JSON data, with the fields in which the specs differ."""
    fields: dict[str, list[str]] = {}
    difference = None
    if first is None or second is None:
        one = "second" if first is None else "first"
        same, reason = first is second, "neither rotates" if first is second else f"only the {one} rotates here"
    else:
        results = compare_lengths(first, second, length)
        same, reason = all(result.same for result in results), "\n".join(map(str, results))
        parting = next((result for result in results if result.pair is not None), results[-1])
        difference = Difference(pair=parting.pair, position=parting.position)
        fields = {name: [str(value) for value in values] for name, values in parting.fields.items()}
    finding = Finding(
        where=f"layers {ranges(layers)}",
        what="rotation",
        verdict="right" if same else "wrong",
        reason=reason,
        difference=difference,
    )
    return {**finding.to_dict(), "layers": layers, "fields": fields}
