"""Words as numbers: which texts have words, and the hashed features that stand for a word that need not be known."""

import unicodedata
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from pathlib import Path
from zlib import crc32

import torch
from torch import Tensor

from phasor.support.regular_files import opened

from .config import SpanConfig

# Scripts that put no spaces between words, as the names of their letters begin.
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI ")
UNKNOWN = "[UNK]"
FEATURES: dict[str, Callable[[str], str]] = {
    "form": lambda word: word,
    "lower": lambda word: word.lower(),
    "prefix1": lambda word: word[:1],
    "prefix2": lambda word: word[:2],
    "prefix3": lambda word: word[:3],
    "prefix4": lambda word: word[:4],
    "suffix1": lambda word: word[-1:],
    "suffix2": lambda word: word[-2:],
    "suffix3": lambda word: word[-3:],
    "suffix4": lambda word: word[-4:],
    "shape": lambda word: shape(word),
}


def have_words(texts: Iterable[str], letters: int = 100_000) -> bool:
    """Whether most of the letters, of the first ``letters``, are of scripts that put spaces between words.

    >>> have_words(["Ada met Bob"]), have_words(["彭小军认为"])
    (True, False)
    """
    spaced = seen = 0
    for text in texts:
        for character in filter(str.isalpha, text):
            seen += 1
            spaced += not unicodedata.name(character, "").startswith(UNSPACED)
        if seen >= letters:
            break
    return 2 * spaced >= seen


def shape(word: str) -> str:
    """The word with X for capitals, x for small letters, o for others and d for digits; runs are cut to two.

    >>> shape("Berlin-2014"), shape("iPhone"), shape("...")
    ('Xxx-dd', 'xXxx', '..')
    """
    kinds = "".join(map(_kind, word[:64]))
    return "".join("".join(run)[:2] for _, run in groupby(kinds))


def _kind(character: str) -> str:
    if character.isdigit():
        return "d"
    if not character.isalpha():
        return character
    return "X" if character.isupper() else "x" if character.islower() else "o"


@lru_cache(maxsize=2**17)
def hashed(word: str, rows: int) -> tuple[int, ...]:
    """The row of each of `FEATURES` in a table of ``rows``: CRC-32 of "name=value" in UTF-8, modulo ``rows``.

    Two features may share a row; they hardly ever share all of them (Miranda et al. 2022, "Multi hash embeddings in
    spaCy", arXiv:2212.09255).

    >>> hashed("Ada", 20000)[0] == crc32(b"form=Ada") % 20000
    True
    """
    return tuple(crc32(f"{name}={of(word)}".encode()) % rows for name, of in FEATURES.items())


@dataclass(frozen=True)
class WordVectors:
    """Words and their vectors, ``values`` float32 ``[len(words), width]``."""

    words: tuple[str, ...]
    values: Tensor

    @property
    def width(self) -> int:
        return self.values.shape[1]


def read_vectors(path: Path) -> WordVectors:
    """A UTF-8 file with a word and its numbers a line, as GloVe, word2vec (text) and fastText (.vec) write it.

    A first line of two integers (how many words, how wide) is left out; of a word that stands twice the first counts.
    Raises ``ValueError`` for a line of another width, or with what is no number, by its number.
    """
    words: dict[str, int] = {}
    rows: list[Tensor] = []
    with opened(path) as fd, open(fd, encoding="utf-8", errors="replace", closefd=False) as file:
        for number, line in enumerate(file, 1):
            word, *values = line.rstrip().split(" ")
            if number == 1 and len(values) == 1 and word.isdigit() and values[0].isdigit():
                continue
            try:
                row = torch.tensor([float(value) for value in values])
            except ValueError:
                row = torch.empty(0)
            if not len(row) or len(row) != len(rows[0] if rows else row) or not bool(row.isfinite().all()):
                numbers = f"{len(rows[0])} numbers" if rows else "its numbers"
                raise ValueError(f"{path}:{number}: line must hold a word and {numbers}, got {line.rstrip()[:60]!r}")
            if word and word not in words and word != UNKNOWN:
                words[word] = len(rows)
                rows.append(row)
    if not rows:
        raise ValueError(f"{path}: file must hold a word and its numbers a line, got none")
    return WordVectors(tuple(words), torch.stack(rows))


def token_ids(config: SpanConfig) -> Callable[[str, int], tuple[int, ...]] | None:
    """What a model takes for a token, from its text and its number in the tokenizer; None for the number itself.

    For words that is the row of each feature, and behind them the number where the model has vectors for words.
    """
    if not config.words:
        return None
    rows = config.rows
    if config.vectors:
        return lambda word, number: (*hashed(word, rows), number)
    return lambda word, number: hashed(word, rows)
