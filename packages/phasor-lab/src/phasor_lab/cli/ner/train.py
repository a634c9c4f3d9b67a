"""`phasor ner train`: a span model from labelled texts."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

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
    str | None,
    typer.Option(
        help="convolution or bilstm, from scratch, or the folder of a transformers encoder "
        "(default: convolution on words, bilstm where texts have no spaces between words)."
    ),
]
Tokens = Annotated[
    Literal["words", "characters"] | None,
    typer.Option(help="Of an encoder from scratch: words, known by their features; or one per character."),
]
Head = Annotated[
    Literal["efficient", "global-pointer"] | None,
    typer.Option(help="EfficientGlobalPointer, or GlobalPointer (the default of a bilstm): queries for each label."),
]
Rotary = Annotated[bool, typer.Option(help="Rotate the head's queries and keys.")]
Dim = Annotated[int | None, typer.Option(min=8, help="Width of the encoder (default: 96, or 192 on characters).")]
Layers = Annotated[int, typer.Option(min=1, help="Layers of an encoder from scratch.")]
MaxLength = Annotated[
    int, typer.Option(min=1, help="Tokens of a window; longer texts are cut, and windows share a quarter.")
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Most epochs (default: from 60 for few sentences to 10 for many).")
]
Batch = Annotated[
    int | None, typer.Option(min=1, help="Windows per step (default: 16 below 5,000 sentences, else 32).")
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
    tokens: Tokens = None,
    head: Head = None,
    rotary: Rotary = True,
    dim: Dim = None,
    layers: Layers = 2,
    max_length: MaxLength = 256,
    epochs: Epochs = None,
    batch: Batch = None,
    lr: Lr = None,
    threshold: LeastProbability = None,
    mode: SpanMode = None,
    seed: Seed = 0,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a model on labelled texts, and keep the epoch that is best on the development data."""
    from ...ner import SpanConfig, TrainConfig, labels_of, read
    from ...ner import train as train_one
    from ...ner.config import RECIPES, usual_batch, usual_epochs
    from ...ner.data import hold_out, usual_mode
    from ...ner.model import new_model
    from ...ner.tokens import tokenizer_and_limits
    from ...ner.words import have_words

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
    texts = [example.text for example in examples]
    spaced = have_words(texts)
    if encoder is None:
        encoder = "convolution" if (tokens or ("words" if spaced else "")) == "words" else "bilstm"
    folder = None if encoder in ("convolution", "bilstm") else Path(encoder)
    if tokens is None:
        tokens = "words" if spaced and folder is None else "characters"
    kind = "pretrained" if folder else encoder
    usual = RECIPES[kind]
    tokenizer, max_length = tokenizer_and_limits(folder, tokens, texts, max_length)
    model_config = SpanConfig(
        labels=labels, vocab=tokenizer.get_vocab_size(), encoder=kind, dim=dim or usual.dim, layers=layers,
        dropout=usual.dropout, head=head or usual.head, rotary=rotary, words=folder is None and tokens == "words",
        max_length=max_length, overlap=max_length // 4,
    )  # fmt: skip
    if folder is None:
        tell(f"model: {kind} on {tokens}, {layers} layers of width {model_config.dim}")
    config = TrainConfig(
        seed=seed, epochs=epochs or usual_epochs(len(examples)), batch=batch or usual_batch(len(examples)),
        lr=usual.lr if lr is None else lr, threshold=threshold, mode=mode or usual_mode(examples),
    )  # fmt: skip
    summary = _summary(
        train_one(
            new_model(model_config, seed, folder), tokenizer, examples, dev_examples, config, out,
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
