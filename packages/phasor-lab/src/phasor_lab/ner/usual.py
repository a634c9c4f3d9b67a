"""What is taken where nothing else is given, by what was measured (docs/spans.md, sections 11 and 12)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from .config import SpanConfig, TrainConfig
from .data import Example, labels_of, usual_mode
from .tokens import tokenizer_and_limits
from .words import have_words


class Recipe(NamedTuple):
    """Of one encoder."""

    dim: int
    dropout: float
    lr: float
    head: str


# Queries and keys for each label are worth two points over a BiLSTM on characters with few texts, and nothing on words.
RECIPES = {
    "bilstm": Recipe(192, 0.2, 3e-3, "global-pointer"),
    "convolution": Recipe(96, 0.3, 2e-3, "efficient"),
    "pretrained": Recipe(192, 0.1, 5e-5, "efficient"),
}


def usual(
    examples: Sequence[Example], encoder: Path | None = None, max_length: int = 256
) -> tuple[SpanConfig, TrainConfig, Any]:
    """Model, training and tokenizer for texts: a convolution on words, a BiLSTM on characters where a script has no
    spaces between words, or the transformers encoder of a folder. Raises ``ValueError`` as `tokenizer_and_limits`.

    >>> from .data import Entity
    >>> model, training, _ = usual([Example("Ada met Bob", (Entity(0, 3, "name"),), "")])
    >>> model.encoder, model.head, model.dim, model.overlap
    ('convolution', 'efficient', 96, 64)
    >>> training.epochs, training.batch, training.lr, training.mode
    (60, 16, 0.002, 'flat')
    """
    texts = [example.text for example in examples]
    words = encoder is None and have_words(texts)
    kind = "pretrained" if encoder else "convolution" if words else "bilstm"
    recipe = RECIPES[kind]
    tokenizer, max_length = tokenizer_and_limits(encoder, "words" if words else "characters", texts, max_length)
    model = SpanConfig(
        labels=labels_of(examples), vocab=tokenizer.get_vocab_size(), encoder=kind, dim=recipe.dim,
        dropout=recipe.dropout, head=recipe.head, max_length=max_length, overlap=max_length // 4,
    )  # fmt: skip
    count = len(examples)
    training = TrainConfig(
        epochs=usual_epochs(count), batch=16 if count < 5000 else 32, lr=recipe.lr, mode=usual_mode(examples)
    )
    return model, training, tokenizer


def usual_epochs(sentences: int) -> int:
    """Many passes over few sentences, few over many: 10 and one for each time that ``sentences`` goes into 6,000.

    >>> usual_epochs(200), usual_epochs(1500), usual_epochs(24000)
    (40, 14, 10)
    """
    return 10 + min(50, 6000 // max(1, sentences))
