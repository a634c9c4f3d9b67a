"""`phasor ner evaluate`: precision, recall and F1 of a span model."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import one_line, say, say_json

from .options import Columns, Device, Json, Mode, ModelFolder, Threads, Threshold, prepare


def evaluate(
    model: ModelFolder,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="File of texts with their entities.")],
    column: Columns = None,
    threshold: Threshold = None,
    mode: Mode = None,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Print precision, recall and F1: overall, by label, and for nested spans apart."""
    from ...ner import evaluate as compare
    from ...ner import labels_of, load, predict, read
    from ...ner.metrics import page, to_dict

    prepare(threads, device)
    examples = read(data, columns=column)
    saved = load(model)
    if unknown := [label for label in labels_of(examples) if label not in saved.model.config.labels]:
        labels = ", ".join(unknown)
        say(one_line(f"{data} has labels that {model} was not trained on and misses: {labels}"), error=True)
    saved.model.to(device)
    predictions = predict(saved, [example.text for example in examples], threshold=threshold, mode=mode)
    scores = compare([example.entities for example in examples], predictions)
    say_json(to_dict(scores)) if as_json else say(page(scores))
