import json
from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the pages and figures go.")] = Path("phasor-demo"),
    train: Annotated[bool, typer.Option(help="Also train small models and write the lab's report.")] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the measurements as JSON.")] = False,
) -> None:
    """Read models that ship, explain each on a page, measure the relative law, and train small models."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"--out must be a folder, got the file {str(out)!r}; name another")
    from ..apps.demo import run

    results = run(out, say=(lambda line: None) if as_json else print, train=train, progress=not as_json)
    if as_json:
        print(json.dumps(results, indent=2))
