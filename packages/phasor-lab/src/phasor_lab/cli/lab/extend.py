"""`phasor lab extend`: trained rotary models at longer contexts, with every scaling."""

from typing import Annotated, Any

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_file_target

from .options import Json, Runs, Scored, TextFiles, Threads, numbers, prepare, print_table, text_of


def extend(
    runs: Runs,
    text: TextFiles = None,
    schemes: Annotated[str, typer.Option(help="Scaling schemes, with commas (default: all).")] = "",
    factors: Annotated[str, typer.Option(help="How many times the training length.")] = "2,4,8",
    tokens: Scored = 65_536,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Stretch trained rotary models without fine-tuning, with every scaling scheme."""
    from ...lab import SCHEMES, load_model
    from ...lab import extend as extend_one
    from ...lab.results import EXTENSION, extensions, find_runs, gather, training_note
    from ...run_folder.files import write_json

    prepare(threads)
    names = [name.strip() for name in schemes.split(",")] if schemes else list(SCHEMES)
    multiples = [_whole(f) for f in numbers("factors", factors)]
    results: dict[str, Any] = {}
    folders = find_runs(runs)
    for folder in folders:
        check_file_target("RUN", folder / EXTENSION)
    for folder in folders:
        model, config = load_model(folder)
        if config.model.encoding != "rotary" and len(folders) > 1:
            continue
        results[str(folder)] = extend_one(
            model, config, text_of(folder, text), schemes=names, factors=multiples, tokens=tokens
        )
        write_json(folder / EXTENSION, results[str(folder)])
    if not results:
        raise ValueError("runs must have a rotary one among them to be extended, got none")
    if as_json:
        say_json(results)
        return
    gathered = gather(list(results))
    print_table("times the length", extensions(gathered))
    say(next(iter(results.values()))["protocol"])
    if note := training_note(gathered):
        say(note)


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError(f"factors must be integers of at least 1, got {number:g}")
    return int(number)
