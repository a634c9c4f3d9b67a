"""The table of commands."""

from importlib.metadata import version
from typing import Annotated

import typer

from ..support.plain_text import say
from . import bench, convert, demo, detect, doctor, golden, inspect, lab, ner, plan


def _version(asked: bool) -> None:
    if asked:
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
    """Position encodings: read a model's config, see what its rotary embedding does."""


app.command("inspect")(inspect.inspect)
app.command("plan")(plan.plan)
app.command("demo")(demo.demo)
app.command("bench")(bench.bench)
app.command("convert")(convert.convert)
app.command("detect")(detect.detect)
app.command("doctor")(doctor.doctor)
app.add_typer(lab.app, name="lab")
app.add_typer(ner.app, name="ner")
app.command("golden")(golden.golden)
app.command("check")(golden.check)
