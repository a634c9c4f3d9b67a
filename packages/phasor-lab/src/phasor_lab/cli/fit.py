"""`phasor fit`: the best frequencies of one model for a longer context."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.cli.progress import progress
from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_file_target


def fit(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A folder with a transformers model.")],
    text: Annotated[Path, typer.Option(metavar="FILE", help="Text of the kind that the model was trained on.")],
    length: Annotated[int, typer.Option(min=2, help="The length to reach, in tokens.")],
    holdout: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Other text to judge on (default: the second half of --text).")
    ] = None,
    trained: Annotated[
        int | None, typer.Option(min=2, help="The length that the model was trained for (default: the declared one).")
    ] = None,
    evaluations: Annotated[int, typer.Option(min=10, help="How often the loss is evaluated.")] = 120,
    attention: Annotated[
        float | None,
        typer.Option(help="Factor on cos and sin (default: by LongRoPE's formula, which every engine supports)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search; the same seed gives the same result.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a config.json with what was found.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Search the frequencies with the lowest loss at a longer context, and compare them with the known scalings.

    Exit code 0: the result is better than every known scaling on the text to judge on, 1: it is not.
    """
    from ..fitting import fit_folder

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
        attention=attention,
        seed=seed,
        tell=progress("evaluations"),
    )
    say_json(fitted.to_dict()) if as_json else say(fitted)
    if out is not None and not as_json:
        say(f"wrote {out}: {fitted.answer}; its settings for an engine: phasor plan {out} --length {length}")
    if fitted.gain <= 0:
        raise typer.Exit(1)
