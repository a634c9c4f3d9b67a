"""From scores to spans: all of them, nested without crossings, or flat."""

import math
from collections.abc import Iterable
from typing import Literal, NamedTuple, get_args

from torch import Tensor

from ...support.checks import number, one_of

Mode = Literal["all", "nested", "flat"]
MODES: tuple[str, ...] = get_args(Mode)


class Span(NamedTuple):
    """An entity of one type from token ``start`` to token ``end``, both inside; ``score`` is its probability.

    >>> span = Span(type=0, start=3, end=4, score=0.9)
    >>> span.end - span.start + 1  # tokens
    2
    """

    type: int
    start: int
    end: int
    score: float


def decode(scores: Tensor, *, threshold: float = 0.5, mode: Mode = "all") -> list[list[Span]]:
    """The spans of every sentence with a probability above ``threshold``, in the order of the text.

    ``scores`` s is ``[B, num_types, S, S]``, -inf where there is no cell. The probability is ``sigmoid(2 s)``, the
    optimum of `multilabel_cross_entropy`; a threshold of 0.5 is ``s > 0``. ``mode`` is as in `select`.

    >>> import torch
    >>> scores = torch.full((1, 1, 3, 3), -5.0)
    >>> scores[0, 0, 0, 1], scores[0, 0, 1, 2] = 2.0, 1.0
    >>> [span[:3] for span in decode(scores)[0]]
    [(0, 0, 1), (0, 1, 2)]
    >>> [span[:3] for span in decode(scores, mode="flat")[0]]
    [(0, 0, 1)]
    """
    if scores.ndim != 4 or scores.shape[-1] != scores.shape[-2]:
        raise ValueError(f"scores must be [batch, num_types, seq, seq], got shape {tuple(scores.shape)}")
    number("threshold", threshold, at_least=0)
    if threshold > 1:
        raise ValueError(f"threshold must be a probability from 0 to 1, got {threshold}; 0.5 is a score of 0")
    one_of("mode", mode, MODES)
    spans: list[list[tuple[float, Span]]] = [[] for _ in range(scores.shape[0])]
    cells = (scores > _score_of(threshold)).nonzero()
    values = scores[tuple(cells.T)].double().tolist()
    for (sentence, kind, start, end), s in zip(cells.tolist(), values, strict=True):
        spans[sentence].append((-s, Span(kind, start, end, probability(s))))
    # probabilities near 1 round to the same number, scores do not: rank by these
    return [_kept([span for _, span in sorted(row)], mode) for row in spans]


def select(spans: Iterable[Span], mode: Mode) -> list[Span]:
    """The spans that may stand together, best score first served, returned in the order of the text.

    - ``"all"``: every span.
    - ``"nested"``: two spans may contain each other (or be the same, of two types) but not cross.
    - ``"flat"``: no token belongs to two spans.

    Raises ``ValueError`` for the last two if a span ends before it starts (a head with ``tril=False``).

    >>> a, b, c = Span(0, 0, 4, 0.9), Span(0, 1, 2, 0.8), Span(0, 2, 6, 0.7)
    >>> select([a, b, c], "nested") == [a, b], select([a, b, c], "flat") == [a]
    (True, True)
    """
    one_of("mode", mode, MODES)
    return _kept(sorted(spans, key=lambda span: (-span.score, span)), mode)


def probability(score: float) -> float:
    """``sigmoid(2 s)`` without overflow."""
    return 0.5 + 0.5 * math.tanh(score)


def _score_of(threshold: float) -> float:
    if threshold in (0, 1):
        return math.inf if threshold else -math.inf
    return 0.5 * math.log(threshold / (1 - threshold))


def _kept(ranked: list[Span], mode: str) -> list[Span]:
    backwards = next((span for span in ranked if span.start > span.end), None)
    if mode != "all" and backwards:
        raise ValueError(
            f"mode must be 'all' for pairs of tokens (tril=False), got {mode!r} and a span from {backwards.start} "
            f"to {backwards.end}, which ends before it starts"
        )
    kept = _flat(ranked) if mode == "flat" else _nested(ranked) if mode == "nested" else ranked
    return sorted(kept, key=lambda span: (span.start, span.end, span.type))


def _flat(ranked: list[Span]) -> list[Span]:
    taken = bytearray(1 + max((span.end for span in ranked), default=0))
    kept = []
    for span in ranked:
        if taken.find(1, span.start, span.end + 1) < 0:
            taken[span.start : span.end + 1] = b"\1" * (span.end + 1 - span.start)
            kept.append(span)
    return kept


def _nested(ranked: list[Span]) -> list[Span]:
    size = 1 + max((span.end for span in ranked), default=0)
    first_start = list(range(size))  # of the kept spans that end here
    last_end = list(range(size))  # of the kept spans that start here
    kept = []
    for span in ranked:
        _, start, end, _ = span
        crosses_left = start < end and min(first_start[start:end]) < start
        crosses_right = start < end and max(last_end[start + 1 : end + 1]) > end
        if not (crosses_left or crosses_right):
            first_start[end] = min(first_start[end], start)
            last_end[start] = max(last_end[start], end)
            kept.append(span)
    return kept
