"""`phasor detect`: the pair layout of a checkpoint's weights."""

from pathlib import Path
from typing import Annotated

import typer

from ..support.plain_text import say, say_json


def detect(
    path: Annotated[Path, typer.Argument(metavar="DIR", help="A folder or a file with a checkpoint.")],
    part: Annotated[str | None, typer.Option(help="The part of a composite model (default: its text model).")] = None,
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Also read .bin and .pth files, by torch.load with weights_only.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False,
) -> None:
    """Say in which layout the rotary pairs of a checkpoint are: by its format, and by its weights.

    Exit code 0: nothing speaks against what the format says, 1: the weights do, 2: bad input.
    """
    from ..tools.checkpoints import detect as find_layout

    detection = find_layout(path, part=part, allow_pickle=allow_pickle)
    say_json(detection.to_dict()) if as_json else say(detection.describe())
    if detection.contradicts:
        raise typer.Exit(1)
