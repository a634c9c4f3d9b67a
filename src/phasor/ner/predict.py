"""From texts to predictions: windows, scores, spans, and the windows of a text merged."""

from collections.abc import Sequence

import torch

from ..heads import Span, decode
from .batches import by_length, collate
from .data import Example
from .data.align import Encoded, align
from .data.merge import Mode, Prediction, merge
from .model import Saved, SpanModel


def predict(
    saved: Saved, texts: Sequence[str], *, threshold: float | None = None, mode: Mode | None = None, batch: int = 32
) -> list[list[Prediction]]:
    """The entities of each text as half-open character spans with probabilities, in the order of the text.

    ``threshold`` (a probability) and ``mode`` are by default those of the training. Texts of any length: longer ones
    than the model's windows are cut and merged.
    """
    config, about = saved.model.config, saved.about["train"]
    examples = [Example(text, (), f"text {i + 1}") for i, text in enumerate(texts)]
    windows, _ = align(examples, saved.tokenizer, config.labels, max_length=config.max_length, stride=config.overlap)
    return predict_windows(
        saved.model,
        windows,
        len(texts),
        threshold=about["threshold"] if threshold is None else threshold,
        mode=mode or about["mode"],
        batch=batch,
    )


@torch.no_grad()
def predict_windows(
    model: SpanModel, windows: Sequence[Encoded], examples: int, *, threshold: float, mode: Mode, batch: int = 32
) -> list[list[Prediction]]:
    """`predict` for texts that are cut already: ``windows`` of ``examples`` texts, as `align` gives them."""
    device = next(model.parameters()).device
    model.eval()
    found: list[list[Span]] = [[] for _ in windows]
    for indices in by_length(windows, batch):
        inputs = collate([windows[i] for i in indices]).to(device)
        scores = model(inputs.ids, inputs.mask, inputs.content).cpu()
        for i, spans in zip(indices, decode(scores, threshold=threshold, mode="all"), strict=True):
            found[i] = spans
    return merge(windows, found, model.config.labels, examples=examples, mode=mode)
