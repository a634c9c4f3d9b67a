"""`fit`: the rotation that a model wants at another length."""

import math
from pathlib import Path
from typing import Annotated

import typer

from ..support.plain_text import say, say_json
from ..support.whole_files import check_file_target
from .progress import is_first, progress


def fit(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A folder with a transformers model.")],
    text: Annotated[Path, typer.Option(metavar="FILE", help="Text of the kind that it was trained on.")],
    length: Annotated[int, typer.Option(min=2, help="The length to reach, in tokens.")],
    holdout: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Other text to judge on (default: the second half of --text).")
    ] = None,
    trained: Annotated[
        int | None, typer.Option(min=2, help="The length it was trained for (default: the declared one).")
    ] = None,
    evaluations: Annotated[int, typer.Option(min=5, help="Candidates to try, each a pass over the text.")] = 220,
    minutes: Annotated[float, typer.Option(help="End the search after so many (default: no end).")] = math.inf,
    seed: Annotated[int, typer.Option(min=0, help="Of the search; the same seed gives the same result.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a config.json with what was found.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Search the rotation that a model wants at another length, beside the known schemes.

    Exit code 0: the search bettered every known scheme on the text to judge on, 1: it did not.
    """
    from ..tools.fit import fit_folder

    if out is not None:
        check_file_target("--out", out)
    fitted = fit_folder(
        model,
        text,
        out,
        holdout=holdout,
        length=length,
        trained=trained,
        evaluations=evaluations,
        minutes=minutes,
        seed=seed,
        tell=progress("candidates"),
    )
    if is_first():
        say_json(fitted.to_dict()) if as_json else say(fitted)
    if out is not None and is_first() and not as_json:
        kept = (
            f"the fitted divisors as longrope, which keeps the model's own frequencies up to {fitted.trained:,} tokens"
        )
        say(f"wrote {out}: {kept if fitted.gain > 0 else f'{fitted.best_known}, the best known scheme'}")
    if fitted.gain <= 0:
        raise typer.Exit(1)
