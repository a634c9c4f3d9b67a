"""The model card: what a span model was trained on, how good it is at what, and what it does not know."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from phasor.support.plain_text import markdown_text

from .config import SpanConfig
from .data import Example
from .metrics import Labelled, Score, Scores, evaluate

CARD = "card.md"
FEW = 20  # entities in the training data, below which a label is called rare
LENGTHS = ((1, 1), (2, 2), (3, 4), (5, 8), (9, 10**9))


def model_card(
    config: SpanConfig,
    epoch: dict[str, Any],
    data: Sequence[Example],
    dev: Sequence[Example],
    predictions: Sequence[Sequence[Labelled]],
    run: dict[str, Any],
) -> str:
    """Markdown. ``predictions`` are those for ``dev`` after ``epoch``, as the log has it; ``run`` the settings."""
    gold = [example.entities for example in dev]
    scores = evaluate(gold, predictions)
    unit = "words" if config.words else "characters"
    parts = [
        "# Model card",
        _about(config, epoch, data, dev, run),
        "## On the development data\n",
        _table("", _overall(scores)),
        _table("label", scores.labels.items()),
        _table(f"length in {unit}", _by_length(gold, predictions, dev, unit)),
        _novelty(data, dev, predictions),
        _confusions(scores),
        "## What it does not know\n",
        _limits(config, data, dev, scores),
    ]
    return "\n".join(parts)


def _about(
    config: SpanConfig, epoch: dict[str, Any], data: Sequence[Example], dev: Sequence[Example], run: dict[str, Any]
) -> str:
    train = run["train"]
    head = f"{config.head}, {'rotary' if config.rotary else 'not rotary'}"
    chosen = ", the best on the development data, so its F1 is a little too good" if train["threshold"] is None else ""
    return "\n".join(
        [
            f"Spans of {len(config.labels)} labels, by an encoder ({config.encoder}) on "
            f"{'words' if config.words else 'tokens'} and a span head ({head}). Seed {train['seed']}; epoch "
            f"{epoch['epoch']} of at most {train['epochs']}; spans: "
            f"{train['mode']}; threshold {epoch['threshold']:.4f}{chosen}.",
            "",
            "| data | file | texts | entities | SHA-256 of texts and entities |",
            "|---|---|---|---|---|",
            _data_row("training", data, run["data"]["train"]),
            _data_row("development", dev, run["data"]["dev"]),
            "",
        ]
    )


def _data_row(name: str, examples: Sequence[Example], sha256: str) -> str:
    entities = sum(len(example.entities) for example in examples)
    return f"| {name} | {_file(examples)} | {len(examples)} | {entities} | `{sha256}` |"


def _file(examples: Sequence[Example]) -> str:
    return (
        markdown_text(examples[0].source.rpartition(":")[0].replace("\\", "/").rpartition("/")[2]) if examples else ""
    )


def _overall(scores: Scores) -> Iterable[tuple[str, Score]]:
    yield "all", scores.overall
    if scores.nested.gold:
        yield "nested alone", scores.nested


def _table(name: str, rows: Iterable[tuple[str, Score]]) -> str:
    lines = [f"| {name} | F1 | precision | recall | right | found | true |", "|---|---|---|---|---|---|---|"]
    for label, s in rows:
        shares = f"{s.f1:.3f} | {s.precision:.3f} | {s.recall:.3f}"
        lines.append(f"| {markdown_text(label)} | {shares} | {s.correct} | {s.predicted} | {s.gold} |")
    return "\n".join([*lines, ""])


def _by_length(
    gold: Sequence[Sequence[Labelled]], predictions: Sequence[Sequence[Labelled]], dev: Sequence[Example], unit: str
) -> Iterable[tuple[str, Score]]:
    def length(example: Example, span: Labelled) -> int:
        surface = example.text[span.start : span.end]
        return len(surface.split()) if unit == "words" else len(surface)

    for least, most in LENGTHS:
        kept = [
            [[span for span in spans if least <= length(example, span) <= most]
             for example, spans in zip(dev, texts, strict=True)]
            for texts in (gold, predictions)
        ]  # fmt: skip
        score = evaluate(*kept).overall
        name = str(least) if least == most else f"{least} to {most}" if most < LENGTHS[-1][1] else f"{least} or more"
        if score.gold or score.predicted:
            yield name, score


def _novelty(data: Sequence[Example], dev: Sequence[Example], predictions: Sequence[Sequence[Labelled]]) -> str:
    known = {_surface(example, entity) for example in data for entity in example.entities}
    counts: Counter[tuple[bool, bool]] = Counter()
    for example, spans in zip(dev, predictions, strict=True):
        right = {(span.start, span.end, span.label) for span in spans}
        for entity in example.entities:
            old = _surface(example, entity) in known
            counts[old, (entity.start, entity.end, entity.label) in right] += 1
    lines = ["| true entities | found | of | recall |", "|---|---|---|---|"]
    for old, name in ((True, "that occur in the training data, with this label"), (False, "that are new")):
        total = counts[old, True] + counts[old, False]
        share = f"{counts[old, True] / total:.3f}" if total else ""
        lines.append(f"| {name} | {counts[old, True]} | {total} | {share} |")
    return "\n".join([*lines, ""])


def _surface(example: Example, span: Labelled) -> tuple[str, str]:
    return example.text[span.start : span.end].lower(), span.label


def _confusions(scores: Scores) -> str:
    pairs = [
        (count, true, taken)
        for (true, taken), count in scores.confusion.items()
        if true is not None and taken is not None and true != taken
    ]
    lines = [
        f"| {markdown_text(true)} | {markdown_text(taken)} | {count} |"
        for count, true, taken in sorted(pairs, key=lambda p: (-p[0], p[1:]))[:10]
    ]
    if not lines:
        return "No span was found with another label than its own.\n"
    return "\n".join(["| true label | taken for | times |", "|---|---|---|", *lines, ""])


def _limits(config: SpanConfig, data: Sequence[Example], dev: Sequence[Example], scores: Scores) -> str:
    counts = Counter(entity.label for example in data for entity in example.entities)
    measured = {entity.label for example in dev for entity in example.entities}
    rare = [f"{markdown_text(label)} ({counts[label]})" for label in config.labels if counts[label] < FEW]
    never = [markdown_text(label) for label in sorted(measured) if not scores.labels[label].correct]
    unseen = [markdown_text(label) for label in config.labels if label not in measured]
    return (
        "\n".join(
            f"- {sentence}"
            for sentence in (
                "Other kinds of text than those it was trained on: nothing here says how good it is there.",
                rare and f"Labels with fewer than {FEW} entities in the training data: {', '.join(rare)}.",
                unseen
                and f"Labels that do not occur in the development data, so were not measured: {', '.join(unseen)}.",
                never and f"Labels of which it found none in the development data: {', '.join(never)}.",
                f"Entities of more than {config.overlap + 1} tokens in texts of more than {config.max_length}: "
                "a window may cut them.",
            )
            if sentence
        )
        + "\n"
    )
