"""`phasor ner evaluate`: precision, recall and F1 of a span model."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import one_line, say, say_json

from .options import Columns, Device, Format, Json, Mode, ModelFolder, TagNames, Threads, Threshold, prepare, reader


def evaluate(
    model: ModelFolder,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="File of texts with their entities.")],
    format: Format = None,
    column: Columns = None,
    tag_names: TagNames = None,
    threshold: Threshold = None,
    mode: Mode = None,
    batch: Annotated[int, typer.Option(min=1)] = 32,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Print precision, recall and F1: overall, by label, and for nested spans apart.

    Also which label is taken for which.
    """
    from ...ner import evaluate as compare
    from ...ner import labels_of, load, predict
    from ...ner.metrics import page, to_dict

    prepare(threads, device)
    examples = reader(format, column, tag_names)(data)
    saved = load(model)
    if unknown := [label for label in labels_of(examples) if label not in saved.model.config.labels]:
        labels = ", ".join(unknown)
        say(one_line(f"{data} has labels that {model} was not trained on and misses: {labels}"), error=True)
    saved.model.to(device)
    texts = [example.text for example in examples]
    predictions = predict(saved, texts, threshold=threshold, mode=mode, batch=batch)
    scores = compare([example.entities for example in examples], predictions)
    say_json(to_dict(scores)) if as_json else say(page(scores))
