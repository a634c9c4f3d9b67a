"""What a training needs before it has a model: the tokenizer, and how many tokens the encoder can take."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .tokens import make_tokenizer, tokenizer_of_encoder

# Dropout and peak learning rate where none are given.
RECIPES = {"bilstm": (0.2, 3e-3), "transformer": (0.1, 1e-3), "pretrained": (0.1, 3e-5)}


def tokenizer_and_limits(encoder: Path | None, tokens: str, texts: Sequence[str], max_length: int) -> tuple[Any, int]:
    """The tokenizer, made from ``texts`` or that of the encoder's folder, and ``max_length`` or what the encoder has.

    Raises ``ValueError`` for a folder without an encoder or with a slow tokenizer.
    """
    if encoder is None:
        return make_tokenizer(tokens, texts), max_length
    if not (encoder / "config.json").is_file():
        raise ValueError(
            f"encoder must be bilstm, transformer or a folder with a transformers encoder, got {str(encoder)!r}"
        )
    from transformers import AutoConfig

    settings = AutoConfig.from_pretrained(encoder, local_files_only=True)
    longest = getattr(settings, "max_position_embeddings", None) or max_length
    # RoBERTa's positions start behind the padding token's
    offset = 0 if getattr(settings, "pad_token_id", 0) in (0, None) else settings.pad_token_id + 1
    return tokenizer_of_encoder(encoder), min(max_length, longest - offset)
