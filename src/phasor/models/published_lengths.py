"""Lengths of training that were published and are not the declared ones: no key of config.json says them."""

from dataclasses import dataclass

from ..rotary.model_rotary import ModelRotary


@dataclass(frozen=True)
class PublishedLength:
    """The longest sequences of pre-training, ``tokens``, of models of these types, and where that is written.

    ``declared``, ``base``: of their configs; others of the types are not meant.
    """

    types: tuple[str, ...]
    declared: int
    base: float
    tokens: int
    source: str


PUBLISHED = (
    PublishedLength(("qwen3", "qwen3_moe"), 40_960, 1_000_000.0, 32_768,
        "QwenLM/Qwen3 docs/source/inference/transformers.md: the maximum context length in pre-training is 32,768"),
    PublishedLength(("qwen2",), 131_072, 1_000_000.0, 32_768,
        "as others quote the reports of Qwen2.5, arXiv:2412.15115, and Qwen2, arXiv:2407.10671: pre-training ends with "
        "32,768"),
    PublishedLength(("mistral",), 32_768, 10_000.0, 8_192,
        "Mistral 7B, arXiv:2310.06825, table 1: context_len 8192, and transformers' page of it: trained with 8k; 0.2, "
        "which has another base, is not meant"),
)  # fmt: skip


def published_length(model: ModelRotary) -> PublishedLength | None:
    """The published length of training of a model without scaling; None where none is known that differs.

    >>> from phasor import read_config
    >>> qwen = {"model_type": "qwen3", "num_hidden_layers": 1, "max_position_embeddings": 40960, "rope_theta": 1e6}
    >>> published_length(read_config(qwen)).tokens
    32768
    """
    for one in PUBLISHED:
        plain = all(spec.scaling is None and spec.base == one.base for spec in model.distinct)
        if plain and model.model_type in one.types and model.max_position == one.declared:
            return one
    return None
