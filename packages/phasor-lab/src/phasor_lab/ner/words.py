"""Words as numbers: which texts have words, and the hashed features that stand for a word that need not be known."""

import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from itertools import groupby
from operator import itemgetter
from zlib import crc32

from .config import SpanConfig

# Scripts that put no spaces between words, as the names of their letters begin.
UNSPACED = ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN", "YI ")
UNKNOWN = "[UNK]"
FEATURES: dict[str, Callable[[str], str]] = {
    "form": str,
    "lower": str.lower,
    **{f"prefix{n}": itemgetter(slice(n)) for n in (1, 2, 3, 4)},
    **{f"suffix{n}": itemgetter(slice(-n, None)) for n in (1, 2, 3, 4)},
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


def token_ids(config: SpanConfig) -> Callable[[str], tuple[int, ...]] | None:
    """What a model takes for a token, from its text: the rows of a word's features; else None, the token's number."""
    return (lambda word: hashed(word, config.rows)) if config.words else None
