"""`phasor lab extend`: trained rotary models at longer contexts, with every scaling."""

from typing import Annotated

import typer

from ..threads import set_threads
from .options import Json, Runs, Scored, TextFiles, Threads, measured, numbers


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
    from ...lab import SCHEMES
    from ...lab import extend as extend_one
    from ...lab.results import EXTENSION, extensions, find_runs, read_run

    set_threads(threads)
    names = [name.strip() for name in schemes.split(",")] if schemes else list(SCHEMES)
    how = {"schemes": names, "factors": [_whole(f) for f in numbers("factors", factors)], "tokens": tokens}
    folders = find_runs(runs)
    if len(folders) > 1 and not (folders := [one for one in folders if read_run(one)["encoding"] == "rotary"]):
        raise ValueError("runs must have a rotary one among them to be extended, got none")
    measured(folders, text, EXTENSION, extend_one, how, "times the length", extensions, as_json)


def _whole(number: float) -> int:
    if not number.is_integer():
        raise ValueError(f"factors must be integers of at least 1, got {number:g}")
    return int(number)
