"""What a training needs before it has a model: the tokenizer, and how many tokens the encoder can take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from .pretrained import make_pretrained, settings_of
from .tokens import make_tokenizer, tokenizer_of_encoder

# Dropout and peak learning rate where none are given.
RECIPES = {"bilstm": (0.2, 3e-3), "transformer": (0.3, 1e-3), "pretrained": (0.1, 5e-5)}


def tokenizer_and_limits(encoder: Path | None, tokens: str, texts: Sequence[str], max_length: int) -> tuple[Any, int]:
    """The tokenizer, made from ``texts`` or that of the encoder's folder, and ``max_length`` or what the encoder has.

    Raises ``ValueError`` for a folder without an encoder, with a slow tokenizer, or with one that is another model's.
    """
    if encoder is None:
        return make_tokenizer(tokens, texts), max_length
    if not (encoder / "config.json").is_file():
        raise ValueError(
            f"encoder must be bilstm, transformer or a folder with a transformers encoder, got {str(encoder)!r}"
        )
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
