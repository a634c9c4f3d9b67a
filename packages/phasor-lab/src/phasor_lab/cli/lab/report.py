"""`phasor lab report`: the results of all runs in one folder."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target

from .options import Json, Runs


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the text, figures and numbers go.")] = Path(
        "phasor-report"
    ),
    as_json: Json = False,
) -> None:
    """Write all tables with their protocols as text, the figures as PNG, and the numbers as JSON."""
    from ...lab import report as write_report

    check_folder_target("--out", out)
    numbers = write_report(runs, out)
    if as_json:
        say_json(numbers)
        return
    if numbers["training"]:
        say(numbers["training"])
    say(f"open {(out / 'report.txt').resolve()}")
