"""What a conditional random field with the usual hand-made features makes of the same data, to compare with."""

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from phasor_lab.ner import Entity, Example, evaluate
from phasor_lab.ner.metrics import Scores

WORD, CHARACTER = re.compile(r"\w+|[^\w\s]"), re.compile(r"\S")
SETTINGS = {
    "c1": 0.1,
    "c2": 0.1,
    "max_iterations": 100,
    "feature.possible_transitions": True,
}  # sklearn-crfsuite's page


def crf_scores(data: Sequence[Example], dev: Sequence[Example], words: bool) -> Scores:
    """Train a CRF (L-BFGS, elastic net) on ``data`` and evaluate it on ``dev``.

    Of words: lower case, suffixes, capitals and digits of a word and of its neighbours, as in sklearn-crfsuite's
    tutorial; of characters: those within two to each side, and pairs of them, as in CRF++'s. Tags are BIO, so of nested
    entities only the outermost count as learnt; all are evaluated.
    """
    import pycrfsuite

    trainer = pycrfsuite.Trainer(verbose=False)
    for example in data:
        tokens = _tokens(example.text, words)
        trainer.append(_features(example.text, tokens, words), _tags(tokens, example.entities))
    trainer.set_params(SETTINGS)
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "crf")
        trainer.train(path)
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        predictions = []
        for example in dev:
            tokens = _tokens(example.text, words)
            predictions.append(list(_entities(tokens, tagger.tag(_features(example.text, tokens, words)))))
        tagger.close()
    return evaluate([example.entities for example in dev], predictions)


def _tokens(text: str, words: bool) -> list[tuple[int, int]]:
    return [match.span() for match in (WORD if words else CHARACTER).finditer(text)]


def _features(text: str, tokens: Sequence[tuple[int, int]], words: bool) -> list[list[str]]:
    forms = [text[start:end] for start, end in tokens]
    return [(_of_word if words else _of_character)(forms, i) for i in range(len(forms))]


def _of_word(forms: list[str], i: int) -> list[str]:
    word = forms[i]
    features = ["bias", f"suffix3={word[-3:]}", f"suffix2={word[-2:]}", f"digits={word.isdigit()}"]
    for offset in (-1, 0, 1):
        if not 0 <= i + offset < len(forms):
            features.append(f"{offset}:none")
            continue
        near = forms[i + offset]
        features += [f"{offset}:{near.lower()}", f"{offset}:title={near.istitle()}", f"{offset}:upper={near.isupper()}"]
    return features


def _of_character(forms: list[str], i: int) -> list[str]:
    near = {k: forms[i + k] if 0 <= i + k < len(forms) else "" for k in range(-2, 3)}
    pairs = ((-2, -1), (-1, 0), (0, 1), (1, 2), (-1, 1))
    return ["bias", *(f"{k}:{c}" for k, c in near.items()), *(f"{a},{b}:{near[a]}{near[b]}" for a, b in pairs)]


def _tags(tokens: Sequence[tuple[int, int]], entities: Iterable[Entity]) -> list[str]:
    tags = ["O"] * len(tokens)
    begins = {start: i for i, (start, _) in enumerate(tokens)}
    ends = {end: i for i, (_, end) in enumerate(tokens)}
    for entity in sorted(entities, key=lambda e: (e.start - e.end, e.start)):  # the longest first
        first, last = begins.get(entity.start), ends.get(entity.end)
        if first is None or last is None or any(tag != "O" for tag in tags[first : last + 1]):
            continue
        tags[first : last + 1] = [f"B-{entity.label}", *[f"I-{entity.label}"] * (last - first)]
    return tags


def _entities(tokens: Sequence[tuple[int, int]], tags: Sequence[str]) -> Iterator[Entity]:
    current: list[Any] | None = None
    for (start, end), tag in zip(tokens, tags, strict=True):
        if current and tag == f"I-{current[2]}":
            current[1] = end
            continue
        if current:
            yield Entity(*current)
        current = None if tag == "O" else [start, end, tag[2:]]
    if current:
        yield Entity(*current)
