"""From texts to predictions: windows, scores, spans, and the windows of a text merged."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from phasor.encodings.heads import Span, decode

from .config import SpanConfig
from .data import Example
from .data.windows import AlignmentReport, Encoded, Mode, Prediction, align, merge
from .model import SavedModel, SpanModel, collate
from .words import token_ids


def predict(
    saved: SavedModel,
    texts: Sequence[str],
    *,
    threshold: float | None = None,
    mode: Mode | None = None,
    batch: int = 32,
) -> list[list[Prediction]]:
    """The entities of each text as half-open character spans with probabilities, in the order of the text.

    ``threshold`` (a probability) is by default the one that was best on the development data, or that of the training;
    ``mode`` is that of the training. Texts of any length: longer ones
    than the model's windows are cut and merged.
    """
    config, about = saved.model.config, saved.about["train"]
    examples = [Example(text, (), f"text {i + 1}") for i, text in enumerate(texts)]
    windows, _ = align_for(config, examples, saved.tokenizer)
    return predict_windows(
        saved.model,
        windows,
        len(texts),
        threshold=saved.about["threshold"] if threshold is None else threshold,
        mode=mode or about["mode"],
        batch=batch,
    )


def align_for(config: SpanConfig, examples: Sequence[Example], tokenizer: Any) -> tuple[list[Encoded], AlignmentReport]:
    """`align` with the labels, the windows and the tokens of a model."""
    return align(
        examples, tokenizer, config.labels,
        max_length=config.max_length, stride=config.overlap, token_ids=token_ids(config),
    )  # fmt: skip


@torch.no_grad()
def predict_windows(
    model: SpanModel,
    windows: Sequence[Encoded],
    examples: int,
    *,
    threshold: float,
    mode: Mode,
    batch: int = 32,
    most: int | None = None,
) -> list[list[Prediction]]:
    """`predict` for texts that are cut already: ``windows`` of ``examples`` texts, as `align` gives them.

    ``most``: spans per token that are looked at, the best ones. A model that has just begun calls half of all cells
    entities, which is millions.
    """
    device = next(model.parameters()).device
    model.eval()
    spans: list[list[Span]] = [[] for _ in windows]
    for indices in by_length(windows, batch):
        inputs = collate([windows[i] for i in indices]).to(device)
        scores = model(inputs.ids, inputs.mask, inputs.content)
        scores = (scores if most is None else _best(scores, most * scores.shape[-1])).cpu()
        for i, of_window in zip(indices, decode(scores, threshold=threshold, mode="all"), strict=True):
            spans[i] = of_window
    return merge(windows, spans, model.config.labels, examples=examples, mode=mode)


def _best(scores: Tensor, count: int) -> Tensor:
    """``scores`` with -inf below the ``count`` best of each window.

    >>> _best(torch.tensor([[[[3.0, 1.0], [0.0, 2.0]]]]), 2).tolist()
    [[[[3.0, -inf], [-inf, 2.0]]]]
    """
    flat = scores.flatten(1)
    least = flat.topk(min(count, flat.shape[1])).values[:, -1]
    return scores.masked_fill(scores < least[:, None, None, None], float("-inf"))


def by_length(windows: Sequence[Encoded], batch: int) -> list[list[int]]:
    """Indices of all windows in batches of about equal length, for prediction.

    >>> by_length([Encoded([0] * n, [], [], 0, []) for n in (3, 1, 2)], 2)
    [[1, 2], [0]]
    """
    order = sorted(range(len(windows)), key=lambda i: len(windows[i].ids))
    return [order[i : i + batch] for i in range(0, len(order), batch)]
