"""`phasor ner`: one file per command."""

import typer

from .evaluate import evaluate
from .predict import predict_texts
from .train import train

app = typer.Typer(no_args_is_help=True, help="Train span recognition on labelled text, measure it, use it.")

COMMANDS = (  # with the line that the list of commands shows, whole at 80 columns
    ("train", train, "Train a model on labelled texts"),
    ("evaluate", evaluate, "Precision, recall and F1 on labelled texts"),
    ("predict", predict_texts, "Find spans in texts, as JSON lines"),
)
for name, command, line in COMMANDS:
    app.command(name, short_help=line)(command)
