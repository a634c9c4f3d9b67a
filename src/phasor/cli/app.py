"""The table of commands."""

import typer

from . import demo, inspect, lab

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Position encodings: read a model's config, see what its rotary embedding does.",
)
app.command("inspect")(inspect.inspect)
app.command("demo")(demo.demo)
app.add_typer(lab.app, name="lab")
