import json
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the pages and figures go.")] = Path("phasor-demo"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
) -> None:
    """Read models that ship, explain each on a page, and measure the relative law near and far."""
    from ..demo import run

    results = run(out, say=(lambda line: None) if as_json else print)
    if as_json:
        print(json.dumps(results, indent=2))
