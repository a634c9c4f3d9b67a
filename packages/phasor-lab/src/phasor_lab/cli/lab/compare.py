"""`phasor lab compare`: encodings side by side."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target


def compare(
    text: Annotated[
        list[Path] | None,
        typer.Option("--text", metavar="PATH", help="Files or folders (default: Python's own modules)."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where runs, tables and figures go.")] = Path(
        "phasor-compare"
    ),
    encoding: Annotated[list[str] | None, typer.Option(help="Repeat for several.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every registered encoding.")] = False,
    small: Annotated[bool, typer.Option("--small", help="Some ten seconds for each encoding.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Train and evaluate encodings from the same weights on the same text, and set their losses side by side."""
    from ...lab import compare as compare_all

    if every == bool(encoding):
        raise ValueError("encodings must be named by --encoding, or all of them by --all; give one of the two")
    check_folder_target("--out", out)
    budget: dict[str, Any] = {} if small else {"tokens": 1_433_600, "scored": 65_536}
    numbers = compare_all(
        out, encoding or (), text or (), **budget, progress=not as_json,
        command=shlex.join(["phasor", *sys.argv[1:]]), say=(lambda line: None) if as_json else say,
    )  # fmt: skip
    if as_json:
        say_json(numbers)
