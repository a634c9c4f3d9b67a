"""`phasor fit`: the best frequencies of one model for a longer context."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from ..serving.planner import Plan
from ..support.plain_text import say, say_json
from ..support.whole_files import check_file_target
from .progress import is_first, progress


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
    minutes: Annotated[float, typer.Option(help="Minutes after which the search ends (default: no limit).")] = math.inf,
    inside: Annotated[float, typer.Option(min=0, help="Weight of the loss at the trained length.")] = 0.5,
    attention: Annotated[
        float | None,
        typer.Option(help="Factor on cos and sin (default: by LongRoPE's formula, which every engine supports)."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search; the same seed gives the same result.")] = 0,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a config.json with what was found.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Search the frequencies with the lowest loss at a longer context, and compare them with the known scalings.

    Also says which engines run the result. With --out, a command that was killed continues when it is repeated. Exit
    code 0: the result is better than every known scaling on the text to judge on, 1: it is not.
    """
    from ..serving.engines import ENGINES
    from ..serving.planner import plan
    from ..tools.fit import fit_folder
    from ..tools.fit.result import written
    from ..tools.running.windows import read_folder

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
        inside=inside,
        attention=attention,
        seed=seed,
        tell=progress("evaluations"),
    )
    if is_first():
        config = written(fitted, read_folder(model))
        plans = [plan(config, length=length, engine=engine) for engine in ENGINES]
        if as_json:
            engines = {p.engine: {"verdict": p.verdict, "refused": p.refused, "settings": _flags(p)} for p in plans}
            say_json({**fitted.to_dict(), "engines": engines})
        else:
            say("\n".join([str(fitted), "", f"engines, at {length:,} tokens", *map(_line, plans)]))
            say("phasor plan prints the settings of an engine in full")
            if out is not None:
                say(f"wrote {out}: {fitted.answer}")
    if fitted.gain <= 0:
        raise typer.Exit(1)


def _line(plan: "Plan") -> str:
    """One engine: the verdict, and how it is started or why not. Dictionaries are left to ``phasor plan``."""
    flags = " ".join(name if isinstance(value, dict) else f"{name} {value}" for name, value in _flags(plan).items())
    traps = "".join(f"; {trap.text}" for trap in plan.warnings)
    return f"{plan.engine:<14}{plan.verdict:<10}{plan.refused or (flags or 'reads the file as it is') + traps}"


def _flags(plan: "Plan") -> dict[str, Any]:
    return dict(plan.settings.flags) if plan.settings else {}
