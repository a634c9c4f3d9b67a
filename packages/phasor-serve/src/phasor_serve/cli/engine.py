"""`phasor engine`: how an inference engine rotates, beside the model's own code, and which models it has."""

from pathlib import Path
from typing import Annotated

import typer

from phasor.cli.terminal import show
from phasor.support.plain_text import say, say_json


def engine(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="An inference engine, such as vllm.")],
    config: Annotated[
        str | None, typer.Argument(metavar="CONFIG", help="A config.json or a folder that holds one.")
    ] = None,
    flags: Annotated[str, typer.Option(metavar="LINE", help="The engine's command line, or its flags.")] = "",
    renew: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Read again what the engine has, from its unpacked package or source tree."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show how an engine rotates with given flags, next to the model's own code, and which mistakes apply.

    With --renew: which models the engine has, and what their code reads, taken anew from its own registry; prints what
    changed, and plans go by it from then on.
    """
    if (config is None) == (renew is None):
        raise ValueError("CONFIG must name what the engine is to read, or --renew its package: give one of both")
    if renew is not None:
        from ..engines import engine_of
        from ..engines.renewal import renew as renewed

        return say("\n".join(renewed(engine_of(engine), renew)))
    from ..planner.engine_diff import compare_engine, comparison_lines

    comparison = compare_engine(config, engine, flags)
    say_json(comparison) if as_json else show("\n".join(comparison_lines(comparison)))
