"""`phasor lab`: one file per command."""

import typer

from .compare import compare
from .export import export
from .report import report
from .train import train

app = typer.Typer(no_args_is_help=True, help="Train small models on real text and see how far encodings reach.")

COMMANDS = (  # with the line that the list of commands shows, whole at 80 columns
    (train, "Train one model for each encoding and seed"),
    (compare, "Encodings side by side, all of them if you like"),
    (export, "A rotary model as a folder that transformers loads"),
    (report, "Loss beyond the training length, in tables and figures"),
)
for command, line in COMMANDS:
    app.command(short_help=line)(command)
