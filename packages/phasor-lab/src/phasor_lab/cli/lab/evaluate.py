"""`phasor lab evaluate`: the loss of trained models beyond the training length."""

from typing import Annotated, Any

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_file_target

from .options import Json, Runs, Scored, TextFiles, Threads, numbers, prepare, print_table, text_of


def evaluate(
    runs: Runs,
    text: TextFiles = None,
    times: Annotated[
        str, typer.Option(help="Context lengths, as multiples of the training length.")
    ] = "1,1.5,2,4,8,16",
    tokens: Scored = 65_536,
    stride: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Slide windows by this many bytes, and score the last ones of each (default: windows side by side).",
        ),
    ] = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Measure the loss beyond the training length, or the accuracy of a task. The result is written beside each run."""
    from ...lab import evaluate as evaluate_one
    from ...lab import load_model
    from ...lab.results import EVALUATION, by_length, find_runs, gather, training_note
    from ...run_folder.files import write_json

    prepare(threads)
    chosen = numbers("times", times)
    results: dict[str, Any] = {}
    folders = find_runs(runs)
    for folder in folders:
        check_file_target("RUN", folder / EVALUATION)
    for folder in folders:
        model, config = load_model(folder)
        source = text_of(folder, text) if config.task == "text" else None
        results[str(folder)] = evaluate_one(model, config, source, times=chosen, tokens=tokens, stride=stride)
        write_json(folder / EVALUATION, results[str(folder)])
    if as_json:
        say_json(results)
        return
    gathered = gather(runs, ["evaluation"])
    for task in ("text", "copy", "passkey"):
        value = "loss" if task == "text" else "accuracy"
        if table := by_length(gathered, task, value):
            print_table(f"{task}: {value}", table)
            say(next(r["protocol"] for r in results.values() if r["task"] == task) + "\n")
    if note := training_note(gathered):
        say(note)
