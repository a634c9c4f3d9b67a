"""`phasor engine`: how an inference engine rotates, beside the model's own code."""

from typing import Annotated

import typer

from phasor.cli.terminal import show
from phasor.support.plain_text import say_json


def engine(
    engine: Annotated[str, typer.Argument(metavar="ENGINE", help="An inference engine, such as vllm.")],
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A config.json or a folder that holds one.")],
    flags: Annotated[str, typer.Option(metavar="LINE", help="The engine's command line, or its flags.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show how an engine rotates with given flags, next to the model's own code, and which mistakes apply."""
    from ..planner.engine_diff import compare_engine, comparison_lines

    comparison = compare_engine(config, engine, flags)
    say_json(comparison) if as_json else show("\n".join(comparison_lines(comparison)))
