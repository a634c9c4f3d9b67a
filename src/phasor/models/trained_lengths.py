"""Lengths of training that were published and are not the declared ones: no key of config.json says them."""

from dataclasses import dataclass

from .reading.model import ModelRotary


@dataclass(frozen=True)
class TrainedLength:
    """The longest sequences of pre-training, in tokens, and where that is written."""

    tokens: int
    source: str


@dataclass(frozen=True)
class _Published:
    """The models that a publication speaks of: their types, with the length and base that their configs declare."""

    types: tuple[str, ...]
    declared: int
    base: float
    trained: TrainedLength


PUBLISHED = (
    _Published(("qwen3", "qwen3_moe"), 40_960, 1_000_000.0, TrainedLength(32_768,
        "QwenLM/Qwen3 docs/source/inference/transformers.md: the maximum context length in pre-training is 32,768")),
)  # fmt: skip


def trained_length(model: ModelRotary) -> TrainedLength | None:
    """The published length of training of a model without scaling; None where none is known that differs.

    >>> from phasor import read_config
    >>> qwen = {"model_type": "qwen3", "num_hidden_layers": 1, "max_position_embeddings": 40960, "rope_theta": 1e6}
    >>> trained_length(read_config(qwen)).tokens
    32768
    """
    for one in PUBLISHED:
        plain = all(spec.scaling is None and spec.base == one.base for spec in model.distinct)
        if plain and model.model_type in one.types and model.max_position == one.declared:
            return one.trained
    return None
