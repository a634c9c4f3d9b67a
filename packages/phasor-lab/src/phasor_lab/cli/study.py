"""`phasor study`: which pairs of its rotation a model uses, and what its heads attend to."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.cli.progress import progress
from phasor.support.plain_text import say, say_json


def study(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A folder with a transformers model.")],
    text: Annotated[Path, typer.Option(metavar="FILE", help="Text of the kind that the model was trained on.")],
    length: Annotated[
        int | None, typer.Option(min=16, help="Tokens of a window (default: the declared length).")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Say which pairs of its rotation a model uses, and what each head looks at.

    A pair is used if the loss on the text grows when the pair is stopped, or rotated half as fast.
    """
    from ..studying import study_folder

    report = study_folder(model, text, length=length, tell=progress("pairs"))
    say_json(report.to_dict()) if as_json else say(report)
