"""`phasor ner`: one file per command."""

import typer

from .evaluate import evaluate
from .export import export
from .predict import predict_texts
from .train import train

app = typer.Typer(no_args_is_help=True, help="Train span recognition on labelled text, measure it, use it.")
app.command()(train)
app.command()(evaluate)
app.command("predict")(predict_texts)
app.command()(export)
