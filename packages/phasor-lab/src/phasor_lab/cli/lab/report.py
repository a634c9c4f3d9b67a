"""`phasor lab report`: the loss of trained models beyond the training length, in one folder."""

import math
from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs, or a folder that holds them.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the text, figures and numbers go.")] = Path(
        "phasor-report"
    ),
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", metavar="PATH", help="Files or folders (default: those of the training)."),
    ] = None,
    times: Annotated[
        str, typer.Option(help="Context lengths, as multiples of the training length.")
    ] = "1,1.5,2,4,8,16",
    tokens: Annotated[int, typer.Option(min=1, help="Held-out bytes to score at every length.")] = 65_536,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Measure the loss beyond the training length, of rotary models also with every scaling, without fine-tuning.

    All tables with their protocols are written as text, the figures as PNG, and the numbers as JSON.
    """
    from ...lab import read_text
    from ...lab import report as write_report
    from ...lab.report import summary

    check_folder_target("--out", out)
    numbers = write_report(runs, out, read_text(text) if text else None, times=_numbers(times), tokens=tokens)
    say_json(numbers) if as_json else say(summary(numbers, out))


def _numbers(words: str) -> list[float]:
    try:
        values = [float(word) for word in words.split(",")]
        if not all(map(math.isfinite, values)):
            raise ValueError
        return values
    except ValueError:
        raise ValueError(f"--times must be numbers with commas, got {words!r}") from None
