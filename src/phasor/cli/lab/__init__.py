"""`phasor lab`: one file per command."""

import typer

from .evaluate import evaluate
from .export import export
from .extend import extend
from .report import report
from .train import train

app = typer.Typer(no_args_is_help=True, help="Train small models on real text and see how far encodings reach.")
for command in (train, evaluate, extend, export, report):
    app.command()(command)
