"""Tokenizers: a token per word or character for encoders from scratch, or that of a transformers encoder."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

from .pretrained import make_pretrained, reading, settings_of
from .words import UNKNOWN

KINDS = ("words", "characters")


def make_tokenizer(kind: str, texts: Iterable[str], *, at_least: int = 2) -> Any:
    """A ``tokenizers.Tokenizer``, as it is saved in ``tokenizer.json``.

    ``"words"``: runs of letters, digits and underscores, and each other sign by itself. All share ``[UNK]``: what a
    word is, its features say (`words.hashed`). ``"characters"``: the characters that occur ``at_least`` times in
    ``texts`` have a token each, all others share ``[UNK]`` (so that it is trained too). ``[UNK]`` is token 0; neither
    has a token for padding, which masks hide.

    >>> tokenizer = make_tokenizer("characters", ["abba", "c"])
    >>> tokenizer.encode("abc").ids, tokenizer.encode("abc").offsets
    ([1, 2, 0], [(0, 1), (1, 2), (2, 3)])
    >>> make_tokenizer("words", []).encode("Ada's 2.").tokens
    ['[UNK]', '[UNK]', '[UNK]', '[UNK]', '[UNK]']
    """
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    if kind == "words":
        tokenizer = Tokenizer(models.WordLevel({UNKNOWN: 0}, UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(Regex(r"\w+|[^\w\s]"), "isolated")]
        )
    elif kind == "characters":
        counts = Counter(character for text in texts for character in text)
        frequent = sorted((c for c, n in counts.items() if n >= at_least), key=lambda c: (-counts[c], c))
        tokenizer = Tokenizer(models.WordLevel({UNKNOWN: 0} | {c: i + 1 for i, c in enumerate(frequent)}, UNKNOWN))
        tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    else:
        raise ValueError(f"tokens must be one of {', '.join(KINDS)}, got {kind!r}")
    return tokenizer


def tokenizer_of_encoder(folder: Path) -> Any:
    """The tokenizer of a transformers encoder's directory, without its padding and truncation.

    Raises ``ValueError`` if there is none, or only a slow one, which cannot say where in the text a token is.
    """
    from transformers import AutoTokenizer

    with reading(folder):
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    if not getattr(tokenizer, "is_fast", False):
        raise ValueError(
            f"encoder must have a fast tokenizer (tokenizer.json), got the slow {type(tokenizer).__name__} of "
            f"{str(folder)!r}, which keeps no character offsets; convert it with transformers first"
        )
    backend = tokenizer.backend_tokenizer
    if backend.get_vocab_size() <= len(tokenizer.all_special_ids):  # what transformers makes of a folder without one
        raise ValueError(f"encoder must have a tokenizer in its folder (tokenizer.json), got none in {str(folder)!r}")
    return backend


def tokenizer_and_limits(encoder: Path | None, tokens: str, texts: Sequence[str], max_length: int) -> tuple[Any, int]:
    """The tokenizer, made from ``texts`` or that of the encoder's folder, and ``max_length`` or what the encoder has.

    Raises ``ValueError`` for a folder without an encoder, with a slow tokenizer, or with one that is another model's.
    """
    if encoder is None:
        return make_tokenizer(tokens, texts), max_length
    if not (encoder / "config.json").is_file():
        raise ValueError(f"encoder must be a folder with a transformers encoder, got {str(encoder)!r}")
    longest, rows = _limits(encoder)
    tokenizer = tokenizer_of_encoder(encoder)
    if rows is not None and (largest := max(tokenizer.get_vocab().values())) >= rows:
        raise ValueError(
            f"encoder must have an embedding for each token of its tokenizer, got {rows} embeddings and the token "
            f"{largest} in {str(encoder)!r}: are both of one model?"
        )
    return tokenizer, min(max_length, longest or max_length)


def _limits(encoder: Path) -> tuple[int | None, int | None]:
    """The most tokens that the encoder has positions for, None for no limit; and how many kinds of tokens it knows."""
    settings = settings_of(encoder)
    with torch.device("meta"):
        model = make_pretrained(encoder)
    if settings.is_encoder_decoder:
        raise ValueError(f"encoder must be an encoder alone, got {settings.model_type}, which has a decoder, too")
    rows = getattr(settings, "vocab_size", None)
    longest = getattr(settings, "max_position_embeddings", None)
    if not longest or longest < 0:  # XLNet says -1
        return None, rows
    for name, module in model.named_modules():
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            return longest - module.padding_idx - 1, rows  # RoBERTa's positions start behind the padding token's
    return longest, rows
