"""`phasor lab`: one file per command."""

import typer

from .compare import compare
from .evaluate import evaluate
from .export import export
from .extend import extend
from .report import report
from .train import train

app = typer.Typer(no_args_is_help=True, help="Train small models on real text and see how far encodings reach.")

COMMANDS = (  # with the line that the list of commands shows, whole at 80 columns
    (train, "Train one model for each encoding and seed"),
    (compare, "Encodings side by side, all of them if you like"),
    (evaluate, "Loss beyond the training length"),
    (extend, "Longer contexts with every scaling, without fine-tuning"),
    (export, "A rotary model as a folder that transformers loads"),
    (report, "All tables, figures and numbers in one folder"),
)
for command, line in COMMANDS:
    app.command(short_help=line)(command)
