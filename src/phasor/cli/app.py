"""The table of all commands, with a line about each."""

from typing import Annotated

import typer

from ..support.plain_text import say
from . import atlas, bench, convert, demo, detect, doctor, fit, golden, inspect, lab, ner, plan, study


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        say(version("phasor-rope"))
        raise typer.Exit


app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def phasor(
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_version, help="Print the version.")
    ] = False,
) -> None:
    """Position encodings: read and check a model's rotary embedding, extend its context, convert its weights."""


COMMANDS = (  # with the line that the list of commands shows, whole at 80 columns
    ("inspect", inspect.inspect, "What a model's config says about positions, on one screen"),
    ("plan", plan.plan, "An engine's settings for a longer context, checked"),
    ("convert", convert.convert, "Write a checkpoint in another pair layout or format, and prove it"),
    ("detect", detect.detect, "In which layout the rotary pairs of a checkpoint are"),
    ("doctor", doctor.doctor, "Whether a model's position encoding is right, and why not"),
    ("study", study.study, "Which pairs of its rotation a model uses, and in which heads"),
    ("fit", fit.fit, "The best frequencies of one model for a longer context"),
    ("golden", golden.golden, "Vectors to test rotary code in any language"),
    ("check", golden.check, "Whether other rotary code or an ONNX file is right"),
    ("bench", bench.bench, "What a rotation costs on this machine"),
    ("atlas", atlas.atlas, "Every position encoding as a picture"),
    ("demo", demo.demo, "Most of these on twelve published models, as HTML pages"),
)
for name, command, line in COMMANDS:
    app.command(name, short_help=line)(command)
app.add_typer(lab.app, name="lab", short_help="Small models on real text: which encoding reaches how far")
app.add_typer(ner.app, name="ner", short_help="Span recognition: train, measure, use")
