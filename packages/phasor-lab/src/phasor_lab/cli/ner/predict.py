"""`phasor ner predict`: spans in texts."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say_json
from phasor.support.regular_files import read_file

from .options import Device, Mode, ModelFolder, Threads, Threshold, prepare


def predict_texts(
    model: ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="UTF-8, a text a line; - is the standard input.")] = "-",
    threshold: Threshold = None,
    mode: Mode = None,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Find spans: JSON lines {"text", "spans": [{"start", "end", "label", "score"}]}, which `evaluate` reads too."""
    from ...ner import load, predict
    from ...ner.data.lines import split_lines

    prepare(threads, device)
    texts = split_lines(Path(file), sys.stdin.buffer.read() if file == "-" else read_file(Path(file)))
    saved = load(model)
    saved.model.to(device)
    predictions = predict(saved, texts, threshold=threshold, mode=mode)
    for text, spans in zip(texts, predictions, strict=True):
        say_json({"text": text, "spans": [vars(span) for span in spans]}, indent=None)
