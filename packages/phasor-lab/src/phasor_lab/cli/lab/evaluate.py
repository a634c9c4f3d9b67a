"""`phasor lab evaluate`: the loss of trained models beyond the training length."""

from typing import Annotated

import typer

from ..threads import set_threads
from .options import Json, Runs, Scored, TextFiles, Threads, measured, numbers


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
    from ...lab.results import EVALUATION, by_length, find_runs

    set_threads(threads)
    how = {"times": numbers("times", times), "tokens": tokens}
    measured(find_runs(runs), text, EVALUATION, evaluate_one, how, "loss", by_length, as_json)
