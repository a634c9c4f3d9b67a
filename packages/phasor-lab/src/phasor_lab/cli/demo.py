"""`phasor demo`: twelve published models on pages, and small models that it trains."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the pages and figures go.")] = Path("phasor-demo"),
    train: Annotated[bool, typer.Option(help="Also train small models and write the lab's report.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
) -> None:
    """Read twelve published configs, explain each on a page, and train small models.

    It also measures how exactly scores depend on distances alone.
    """
    check_folder_target("--out", out)
    from ..demo import run

    results = run(out, say=(lambda line: None) if as_json else say, train=train, progress=not as_json)
    if as_json:
        say_json(results)
