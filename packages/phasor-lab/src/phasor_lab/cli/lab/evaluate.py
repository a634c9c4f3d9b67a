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
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Measure the loss beyond the training length. The result is written beside each run."""
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
        results[str(folder)] = evaluate_one(model, config, text_of(folder, text), times=chosen, tokens=tokens)
        write_json(folder / EVALUATION, results[str(folder)])
    if as_json:
        say_json(results)
        return
    gathered = gather(runs)
    print_table("loss", by_length(gathered))
    say(next(iter(results.values()))["protocol"])
    if note := training_note(gathered):
        say(note)
