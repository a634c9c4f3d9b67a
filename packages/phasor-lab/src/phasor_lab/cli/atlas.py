"""`phasor atlas`: every position encoding as a picture."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say
from phasor.support.whole_files import check_folder_target


def atlas(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the page and the pictures go.")] = Path(
        "phasor-atlas"
    ),
) -> None:
    """Draw every position encoding, with the equations that it follows and the code that computes it."""
    check_folder_target("--out", out)
    from ..atlas import run

    paths = run(out)
    say(f"{out / 'index.html'}: {len(paths) // 2} plates, {sum(path.stat().st_size for path in paths):,} bytes")
