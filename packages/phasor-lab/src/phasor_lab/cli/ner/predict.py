"""`phasor ner predict`: spans in texts."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.regular_files import read_file
from phasor.support.whole_files import check_file_target, write_whole

from .options import Device, Mode, ModelFolder, Threads, Threshold, prepare


def predict_texts(
    model: ModelFolder,
    file: Annotated[str, typer.Argument(metavar="[FILE]", help="UTF-8, a text a line; - is the standard input.")] = "-",
    threshold: Threshold = None,
    mode: Mode = None,
    view: Annotated[bool, typer.Option("--view", help="Coloured text instead of JSON lines.")] = False,
    html: Annotated[Path | None, typer.Option(metavar="OUT", help="Write a page of HTML instead.")] = None,
    batch: Annotated[int, typer.Option(min=1)] = 32,
    device: Device = "cpu",
    threads: Threads = None,
) -> None:
    """Find spans: JSON lines {"text", "spans": [{"start", "end", "label", "score"}]}, which `evaluate` reads too."""
    from ...ner import load, predict
    from ...ner.data.lines import split_lines
    from ...ner.display import page, terminal

    if html is not None:
        check_file_target("--html", html)
    prepare(threads, device)
    texts = split_lines(Path(file), sys.stdin.buffer.read() if file == "-" else read_file(Path(file)))
    saved = load(model)
    saved.model.to(device)
    labels = saved.model.config.labels
    predictions = predict(saved, texts, threshold=threshold, mode=mode, batch=batch)
    if html is not None:
        write_whole(html, page(texts, predictions, labels).encode())
        say(html)
        return
    if view:
        from rich.console import Console

        console = Console(soft_wrap=True, highlight=False)
        for text, spans in zip(texts, predictions, strict=True):
            console.print(terminal(text, spans, labels))
        return
    for text, spans in zip(texts, predictions, strict=True):
        say_json({"text": text, "spans": [vars(span) for span in spans]}, indent=None)
