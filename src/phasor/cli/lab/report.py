import json
from pathlib import Path
from typing import Annotated

import typer

from .options import Json, Runs, prepare


def report(
    runs: Runs,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the page, figures and numbers go.")] = Path(
        "phasor-report"
    ),
    as_json: Json = False,
) -> None:
    """One page with all figures, tables and protocols, with nothing outside it; figures and numbers beside it."""
    from ...apps.lab import report as write_report

    prepare(1, "matplotlib")
    numbers = write_report(runs, out)
    print(json.dumps(numbers, indent=2) if as_json else f"open {(out / 'report.html').resolve()}")
