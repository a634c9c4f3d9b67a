"""What the commands share: options, and how their words are read."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_file_target

Runs = Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs, or a folder that holds them.")]
TextFiles = Annotated[
    list[Path] | None, typer.Option("--text", metavar="PATH", help="Files or folders (default: those of the training).")
]
Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
Threads = Annotated[
    int, typer.Option(min=1, help="Threads of each process; more pays for wide models on an idle machine.")
]
Scored = Annotated[int, typer.Option(min=1, help="Held-out bytes to score at every length.")]


def text_of(folder: Path, named: list[Path] | None) -> Any:
    """The text that was named, or the one the run was trained on."""
    from ...lab import read_text
    from ...lab.results import read_run
    from ...lab.train import RUN

    about = read_run(folder)["about"]
    try:
        return read_text(named or about.get("paths", ()))
    except (ValueError, OSError) as error:
        if named:
            raise
        raise ValueError(f"{error}; {folder / RUN} names that text: name another place with --text") from None


def numbers(name: str, words: str) -> list[float]:
    try:
        values = [float(word) for word in words.split(",")]
        if not all(map(math.isfinite, values)):
            raise ValueError
        return values
    except ValueError:
        raise ValueError(f"{name} must be numbers with commas, got {words!r}") from None


def measured(
    folders: list[Path], text: list[Path] | None, file: str, measure: Callable[..., dict[str, Any]],
    how: dict[str, Any], title: str, points: Callable[..., dict[str, Any]], as_json: bool,
) -> None:  # fmt: skip
    """Measure each run, write the result into ``file`` beside it, and print all: as JSON, or as a table of ``points``
    with its protocol."""
    from ...lab import load_model
    from ...lab.report import mean_cell, table_text
    from ...lab.results import gather, training_note
    from ...run_folder.files import write_json

    for folder in folders:
        check_file_target("RUN", folder / file)
    results: dict[str, Any] = {}
    for folder in folders:
        model, config = load_model(folder)
        results[str(folder)] = measure(model, config, text_of(folder, text), **how)
        write_json(folder / file, results[str(folder)])
    if as_json:
        say_json(results)
        return
    gathered = gather(folders)
    say(table_text(title, points(gathered), mean_cell) + "\n")
    say(next(iter(results.values()))["protocol"])
    if note := training_note(gathered):
        say(note)
