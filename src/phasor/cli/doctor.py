"""`phasor doctor`: whether a model's position encoding is right."""

from pathlib import Path
from typing import Annotated

import typer

from ..support.plain_text import say_json
from .terminal import show


def doctor(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="A folder with a config and weights, or a config.json alone.")
    ],
    text: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also rank plausible encodings by the loss of the weights on this text."),
    ] = None,
    meta: Annotated[bool, typer.Option("--meta", help="Check the config alone, without loading weights.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Check a model's position encoding against its config and against itself.

    The model is loaded with transformers, from local files, without code of the folder. Exit code 0: nothing is wrong,
    1: something is, 2: bad input.
    """
    from importlib.util import find_spec

    if find_spec("transformers") is None:
        raise ValueError("doctor needs transformers; install it with: pip install 'phasor-rope[hf]'")
    if not path.strip():
        raise ValueError("PATH must name a folder, got nothing; name the current one with .")
    if text is not None and (meta or Path(path).is_file()):
        raise ValueError("--text runs the weights; name the folder that holds them, without --meta")
    from ..tools.doctor.path_diagnosis import diagnose_path

    result = diagnose_path(Path(path), text=text, meta=meta)
    say_json(result.to_dict()) if as_json else show(str(result))
    if result.exit_code:
        raise typer.Exit(result.exit_code)
