"""Texts cut into windows of tokens with their entities, and the predictions of the windows of a text put together."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import category

from phasor.encodings.heads.decode import Mode, Span, select
from phasor.support.checks import whole

from .example import Entity, Example

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer


@dataclass(frozen=True)
class Encoded:
    """The tokens of one window of a text.

    ``ids``: a number for each token, or several for a word; ``offsets``: the characters of each token in the
    text, half-open; ``special``: the tokens that stand for no character of it (``[CLS]``, ``[SEP]``, ...), never part
    of a span; ``spans``: ``(type, first token, last token)``, both included; ``example``: the index of the text;
    ``shift``: added to the index of a token that is not special, the index of that token in the whole text's encoding.
    """

    ids: list[int] | list[tuple[int, ...]]
    offsets: list[tuple[int, int]]
    special: list[bool]
    example: int
    spans: list[tuple[int, int, int]]
    shift: int = 0


@dataclass(frozen=True)
class AlignmentReport:
    """What became of the entities: ``kept + misaligned + truncated == entities``.

    ``misaligned``: they begin or end inside a token (or in characters that the tokenizer drops). ``truncated``: no
    window holds them whole. ``lost``: those not kept, with their source and the reason.
    """

    entities: int
    kept: int
    misaligned: int
    truncated: int
    lost: tuple[tuple[str, Entity, str], ...] = ()

    def __str__(self) -> str:
        return (
            f"{self.kept} of {self.entities} entities kept, {self.misaligned} misaligned with the tokens, "
            f"{self.truncated} truncated by the windows{self._first()}"
        )

    def _first(self) -> str:
        if not self.lost:
            return ""
        source, entity, reason = self.lost[0]
        return f"; first {reason}: {entity.label} from {entity.start} to {entity.end} at {source}"


def align(
    examples: Sequence[Example],
    tokenizer: "Tokenizer",
    labels: Sequence[str],
    *,
    max_length: int | None = None,
    stride: int | None = None,
    token_ids: Callable[[str], tuple[int, ...]] | None = None,
) -> tuple[list[Encoded], AlignmentReport]:
    """The windows of all examples in order, with their entities as spans of tokens, and a count of what was lost.

    ``max_length``: tokens of a window, special ones included; None: one window a text. ``stride``: the tokens that
    two neighbouring windows share (default: half of those that are not special). Every entity of up to ``stride + 1``
    tokens lies in at least one window, and is a span of each that holds it. A text without tokens gives no window.
    The tokenizer loses its truncation and padding. ``token_ids``: what stands for a token, from its text
    (default: its number in the tokenizer).
    """
    types = {label: i for i, label in enumerate(labels)}
    size, stride = _window(tokenizer, max_length, stride)
    windows: list[Encoded] = []
    lost: list[tuple[str, Entity, str]] = []
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encodings = tokenizer.encode_batch([example.text for example in examples])
    for index, (example, encoding) in enumerate(zip(examples, encodings, strict=True)):
        tokens = _all_tokens(example.text, encoding, index, token_ids)
        spans, misaligned = _spans(tokens, example, types)
        cut = list(_cut(tokens, _content(encoding), size, stride, spans))
        windows += cut
        present = {(t, i + w.shift, j + w.shift) for w in cut for t, i, j in w.spans}
        lost += [(example.source, entity, "misaligned") for entity in misaligned]
        lost += [(example.source, entity, "truncated") for span, entity in spans.items() if span not in present]
    count = Counter(reason for *_, reason in lost)
    entities = sum(len(example.entities) for example in examples)
    return windows, AlignmentReport(
        entities=entities,
        kept=entities - len(lost),
        misaligned=count["misaligned"],
        truncated=count["truncated"],
        lost=tuple(lost),
    )


def _window(tokenizer: "Tokenizer", max_length: int | None, stride: int | None) -> tuple[int | None, int]:
    """The tokens of a window that are not special, and those that two share."""
    if max_length is None:
        return None, 0
    special = tokenizer.num_special_tokens_to_add(False)
    whole("max_length", max_length, at_least=special + 1)
    size = max_length - special
    if stride is None:
        return size, size // 2
    whole("stride", stride, at_least=0)
    if stride >= size:
        raise ValueError(f"stride must be below max_length less the special tokens, {size} here, got {stride}")
    return size, stride


def _all_tokens(
    text: str, encoding: "Encoding", example: int, token_ids: Callable[[str], tuple[int, ...]] | None
) -> Encoded:
    covered = bytearray(len(text))
    for start, end in encoding.offsets:
        covered[start:end] = b"\1" * (end - start)
    offsets = [_characters(text, covered, start, end) for start, end in encoding.offsets]
    special = [bool(s) or i == j for s, (i, j) in zip(encoding.special_tokens_mask, offsets, strict=True)]
    ids: list[int] | list[tuple[int, ...]] = encoding.ids
    if token_ids is not None:
        ids = [token_ids(text[i:j]) for i, j in offsets]
    return Encoded(ids, offsets, special, example, [])


def _characters(text: str, covered: bytearray, start: int, end: int) -> tuple[int, int]:
    """The characters of a token as people see them.

    Without the white space that many tokenizers put before a word (a token of white space alone keeps it), and with
    the combining marks after it that normalization took away or joined to its last letter.
    """
    if text[start:end].strip():
        while text[start].isspace():
            start += 1
        while text[end - 1].isspace():
            end -= 1
        while end < len(text) and not covered[end] and category(text[end]).startswith("M"):
            end += 1
    return start, end


def _spans(
    tokens: Encoded, example: Example, types: dict[str, int]
) -> tuple[dict[tuple[int, int, int], Entity], list[Entity]]:
    """The entities by (type, first token, last token), and those that do not begin and end with tokens."""
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for token, ((start, end), special) in enumerate(zip(tokens.offsets, tokens.special, strict=True)):
        if not special:
            begins.setdefault(start, token)
            ends[end] = token
    spans, misaligned = {}, []
    for entity in example.entities:
        if entity.label not in types:
            raise ValueError(
                f"labels must hold every label, got {entity.label!r} at {example.source} beside {list(types)}"
            )
        first, last = begins.get(entity.start), ends.get(entity.end)
        if first is None or last is None or first > last:
            misaligned.append(entity)
        else:
            spans[types[entity.label], first, last] = entity
    return spans, misaligned


def _content(encoding: "Encoding") -> range:
    """The tokens between those that the tokenizer puts around every text."""
    content = [i for i, special in enumerate(encoding.special_tokens_mask) if not special]
    return range(content[0], content[-1] + 1) if content else range(0)


def _cut(
    tokens: Encoded, content: range, size: int | None, stride: int, spans: Collection[tuple[int, int, int]]
) -> Iterator[Encoded]:
    if all(tokens.special):
        return
    first, last = content.start, content.stop
    size = size or len(content)
    for start in [*range(first, last - size, size - stride), max(first, last - size)]:
        stop = min(start + size, last)
        pick = [*range(first), *range(start, stop), *range(last, len(tokens.ids))]
        yield Encoded(
            [tokens.ids[i] for i in pick],  # type: ignore[arg-type]
            [tokens.offsets[i] for i in pick],
            [tokens.special[i] for i in pick],
            tokens.example,
            [(t, i - start + first, j - start + first) for t, i, j in spans if start <= i and j < stop],
            shift=start - first,
        )


def usual_mode(examples: Iterable[Example]) -> Mode:
    """The strictest rule that the entities of all texts keep: "flat", "nested" or "all".

    >>> usual_mode([Example("Ada met Bob", (Entity(0, 3, "name"), Entity(8, 11, "name")), "")])
    'flat'
    >>> usual_mode([Example("FC Bonn", (Entity(0, 7, "club"), Entity(3, 7, "place")), "")])
    'nested'
    """
    mode: Mode = "flat"
    for example in examples:
        spans = [(entity.start, entity.end) for entity in example.entities]
        for i, j in overlapping(spans):
            mode = "nested"
            if spans[i][0] < spans[j][0] and spans[i][1] < spans[j][1]:
                return "all"
    return mode


def overlapping(spans: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Indices ``i < j`` of spans that share characters; half-open ``(start, end)``, in the order of their starts."""
    for i, (_, end) in enumerate(spans):
        for j in range(i + 1, len(spans)):
            if spans[j][0] >= end:  # and so do all that follow
                break
            yield i, j


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
