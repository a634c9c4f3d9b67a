"""`phasor ner train`: a span model from labelled texts."""

import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target

from .options import Choice, Columns, Device, Json, Threads, prepare

TrainFile = Annotated[
    Path, typer.Argument(metavar="TRAIN", help="Texts with their entities: JSON lines, or columns (CoNLL).")
]
DevFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Development data, which decide when to stop and which epoch and threshold to keep "
        "(default: a tenth of TRAIN, held out).",
    ),
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the model.")]
Encoder = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="A transformers encoder, to train all of (default: an encoder from scratch, for words or characters).",
    ),
]
MaxLength = Annotated[
    int, typer.Option(min=1, help="Tokens of a window; longer texts are cut, and windows share a quarter.")
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Most epochs (default: from 60 for few sentences to 10 for many).")
]
Lr = Annotated[
    float | None, typer.Option(help="Peak learning rate (default: convolution 0.002, bilstm 0.003, a folder 5e-5).")
]
LeastProbability = Annotated[
    float | None, typer.Option(min=0, max=1, help="Least probability of a span (default: the best for dev F1).")
]
SpanMode = Annotated[
    Choice | None,
    typer.Option(help="All spans, none crossing, or none overlapping (default: the strictest that TRAIN keeps)."),
]
Seed = Annotated[int, typer.Option(min=0, help="Of the weights, the batches and dropout.")]


def train(
    data: TrainFile,
    out: Out,
    dev: DevFile = None,
    column: Columns = None,
    encoder: Encoder = None,
    max_length: MaxLength = 256,
    epochs: Epochs = None,
    lr: Lr = None,
    threshold: LeastProbability = None,
    mode: SpanMode = None,
    seed: Seed = 0,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a model on labelled texts, and keep the epoch that is best on the development data."""
    from ...ner import labels_of, read, usual
    from ...ner import train as train_one
    from ...ner.data import hold_out
    from ...ner.model import new_model

    check_folder_target("--out", out)
    prepare(threads, device)
    tell = (lambda line: None) if as_json else say
    examples = read(data, columns=column)
    labels = labels_of(examples)
    if not labels:
        raise ValueError(f"{data}: file must hold at least one entity to learn from, got none")
    if dev is None:
        examples, dev_examples = hold_out(examples, data)
    else:
        dev_examples = read(dev, labels=labels, columns=column)
    model, config, tokenizer = usual(examples, encoder, max_length)
    if encoder is None:
        tell(f"model: {model.encoder} on {'words' if model.words else 'characters'}, width {model.dim}")
    given: dict[str, Any] = {"epochs": epochs, "lr": lr, "mode": mode, "threshold": threshold}
    config = replace(config, seed=seed, **{name: value for name, value in given.items() if value is not None})
    summary = _summary(
        train_one(
            new_model(replace(model, labels=labels), seed, encoder), tokenizer, examples, dev_examples, config, out,
            device=device, progress=not as_json and sys.stderr.isatty(), say=tell,
        )
    )  # fmt: skip
    say_json(summary) if as_json else say(_LINE.format(**summary))


def _summary(result: Any) -> dict[str, Any]:
    score = result.dev
    return {
        "folder": str(result.folder), "epochs": result.epochs, "best_epoch": result.best_epoch,
        "f1": score.f1, "precision": score.precision, "recall": score.recall, "seconds": result.seconds,
    }  # fmt: skip


_LINE = (
    "{folder}  dev F1 {f1:.4f}  P {precision:.4f}  R {recall:.4f}  (epoch {best_epoch} of {epochs}, {seconds:.0f} s)"
)
