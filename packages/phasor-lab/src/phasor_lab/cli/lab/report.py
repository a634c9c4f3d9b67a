"""`phasor lab report`: one page with the results of all runs."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target

from .options import Json, Runs, prepare


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the page, figures and numbers go.")] = Path(
        "phasor-report"
    ),
    as_json: Json = False,
) -> None:
    """Write one page with all figures, tables and protocols, which loads nothing.

    Figures and numbers are written beside it too.
    """
    from ...lab import report as write_report

    check_folder_target("--out", out)
    prepare(1, "matplotlib")
    numbers = write_report(runs, out)
    if as_json:
        say_json(numbers)
        return
    if numbers["training"]:
        say(numbers["training"])
    say(f"open {(out / 'report.html').resolve()}")
