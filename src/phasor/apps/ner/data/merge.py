"""The predictions of all windows of a text as predictions of the text: each span judged once, by one window."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ....encodings.heads.decode import Mode, Span, select
from .encoded import Encoded


@dataclass(frozen=True, order=True)
class Prediction:
    """The characters ``start`` to ``end`` (half-open) of a text, what they are, and the probability of it."""

    start: int
    end: int
    label: str
    score: float


def merge(
    windows: Sequence[Encoded],
    predictions: Sequence[Iterable[Span]],
    labels: Sequence[str],
    *,
    examples: int,
    mode: Mode = "all",
) -> list[list[Prediction]]:
    """The predictions of each of ``examples`` texts, in order; ``predictions[i]`` are the spans of ``windows[i]``.

    A span that several windows hold is judged by the one that shows most of its context (tokens on its shorter side):
    what the others say of it is left out, whether they have it or not. Then ``mode`` is applied to the whole text, best
    score first: ``"nested"`` drops spans that cross a better one, ``"flat"`` those that overlap one. Decode the windows
    themselves with ``mode="all"``.
    """
    if len(predictions) != len(windows):
        raise ValueError(f"predictions must have one list a window, {len(windows)} here, got {len(predictions)}")
    by_text: list[list[Encoded]] = [[] for _ in range(examples)]
    for window in windows:
        by_text[window.example].append(window)
    merged: list[dict[tuple[int, int, int], float]] = [{} for _ in range(examples)]
    for window, spans in zip(windows, predictions, strict=True):
        scores = merged[window.example]
        for span in spans:
            if window.special[span.start] or window.special[span.end]:
                raise ValueError(f"predictions must not begin or end with a special token, got {span}; mask them")
            if _judge(by_text[window.example], span.start + window.shift, span.end + window.shift) is window:
                key = (span.type, window.offsets[span.start][0], window.offsets[span.end][1] - 1)
                scores[key] = max(span.score, scores.get(key, 0.0))
    return [
        [
            Prediction(span.start, span.end + 1, labels[span.type], span.score)
            for span in select((Span(*key, score) for key, score in scores.items()), mode)
        ]
        for scores in merged
    ]


def _judge(windows: list[Encoded], start: int, end: int) -> Encoded:
    """The window of the text that shows most context around tokens ``start`` to ``end``, the first of several."""

    def context(window: Encoded) -> int:
        first, stop = start - window.shift, end - window.shift
        if first < 0 or stop >= len(window.ids) or window.special[first] or window.special[stop]:
            return -1
        return min(first, len(window.ids) - 1 - stop)

    # those that may hold it: windows are in order, and none is longer than the first
    low = bisect_right(windows, end - len(windows[0].ids), key=lambda window: window.shift)
    high = bisect_right(windows, start, key=lambda window: window.shift)
    return max(windows[low:high], key=context)
