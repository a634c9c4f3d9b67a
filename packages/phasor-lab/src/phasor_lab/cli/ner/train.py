"""`phasor ner train`: a span model from labelled texts."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target

from .options import Choice, Columns, Device, Format, Json, TagNames, Threads, prepare, reader

TrainFile = Annotated[Path, typer.Argument(metavar="TRAIN", help="File of texts with their entities.")]
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
        help="convolution, bilstm or transformer, from scratch, or the folder of a transformers encoder "
        "(default: convolution on words, bilstm where texts have no spaces between words)."
    ),
]
Tokens = Annotated[
    Literal["words", "characters", "bytes"] | None,
    typer.Option(help="Of an encoder from scratch: words, known by their features; or one per character or byte."),
]
Head = Annotated[
    Literal["efficient", "global-pointer"] | None,
    typer.Option(help="EfficientGlobalPointer, or GlobalPointer (the default of a bilstm): queries for each label."),
]
Rotary = Annotated[bool, typer.Option(help="Rotate the head's queries and keys.")]
EncoderPositions = Annotated[Literal["rotary", "none"], typer.Option(help="Positions of a transformer from scratch.")]
Vectors = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Vectors for words beside their features: a word and its numbers a line."),
]
Dim = Annotated[int | None, typer.Option(min=8, help="Width of the encoder (default: 96, or 192 on characters).")]
Layers = Annotated[int, typer.Option(min=1, help="Layers of an encoder from scratch.")]
AttentionHeads = Annotated[int, typer.Option(min=1, help="Attention heads of the transformer.")]
HeadDim = Annotated[int, typer.Option(min=2, help="Width of the head's queries and keys.")]
MaxLength = Annotated[int, typer.Option(min=1, help="Tokens of a window; longer texts are cut.")]
Overlap = Annotated[
    int | None, typer.Option(min=0, help="Tokens that two windows share (default: a quarter of a window).")
]
Dropout = Annotated[
    float | None,
    typer.Option(help="Of the encoder (default: bilstm 0.2, a folder 0.1, else 0.3)."),
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Most epochs (default: from 60 for few sentences to 10 for many).")
]
Minutes = Annotated[float | None, typer.Option(help="Train as many epochs as fit into this time on this machine.")]
Batch = Annotated[
    int | None, typer.Option(min=1, help="Windows per step (default: 16 below 5,000 sentences, else 32).")
]
Lr = Annotated[
    float | None,
    typer.Option(
        help="Peak learning rate (default: convolution 0.002, bilstm 0.003, transformer 0.001, a folder 5e-5)."
    ),
]
HeadLr = Annotated[
    float | None, typer.Option(help="Peak learning rate of the head (default: on a folder's encoder 0.001, else lr).")
]
Warmup = Annotated[float, typer.Option(help="Share of the steps in which the learning rate rises; then a cosine to 0.")]
WeightDecay = Annotated[float, typer.Option(help="That of AdamW.")]
Clip = Annotated[float, typer.Option(help="Largest norm of the gradient.")]
Average = Annotated[
    float, typer.Option(help="Decay of the running mean of the weights, which is saved; 0: the last weights.")
]
Patience = Annotated[int, typer.Option(min=0, help="Epochs without a better dev F1 until it stops; 0: never.")]
LeastProbability = Annotated[
    float | None, typer.Option(min=0, max=1, help="Least probability of a span (default: the best for dev F1).")
]
SpanMode = Annotated[
    Choice | None,
    typer.Option(help="All spans, none crossing, or none overlapping (default: the strictest that TRAIN keeps)."),
]
Seeds = Annotated[list[int] | None, typer.Option(min=0, help="Repeat for several: DIR gets a folder each.")]
Bfloat16 = Annotated[
    bool, typer.Option("--bfloat16", help="Train under autocast to bfloat16; on a CPU, LSTMs stay in float32.")
]
CheckpointEvery = Annotated[int, typer.Option(min=1, help="Steps between checkpoints; each epoch ends with one.")]


def train(
    data: TrainFile,
    out: Out,
    dev: DevFile = None,
    format: Format = None,
    column: Columns = None,
    tag_names: TagNames = None,
    encoder: Encoder = None,
    tokens: Tokens = None,
    vectors: Vectors = None,
    head: Head = None,
    rotary: Rotary = True,
    encoder_positions: EncoderPositions = "rotary",
    dim: Dim = None,
    layers: Layers = 2,
    heads: AttentionHeads = 4,
    head_dim: HeadDim = 64,
    max_length: MaxLength = 256,
    overlap: Overlap = None,
    dropout: Dropout = None,
    epochs: Epochs = None,
    minutes: Minutes = None,
    batch: Batch = None,
    lr: Lr = None,
    head_lr: HeadLr = None,
    warmup: Warmup = 0.05,
    weight_decay: WeightDecay = 0.01,
    clip: Clip = 1.0,
    average: Average = 0.99,
    patience: Patience = 5,
    threshold: LeastProbability = None,
    mode: SpanMode = None,
    seed: Seeds = None,
    bfloat16: Bfloat16 = False,
    checkpoint_every: CheckpointEvery = 500,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a model. Repeat a command that was killed: it goes on where it was."""
    from ...ner import SpanConfig, TrainConfig, labels_of
    from ...ner import train as train_one
    from ...ner.config import RECIPES, usual_batch, usual_epochs
    from ...ner.data import hold_out, usual_mode
    from ...ner.model import new_model
    from ...ner.tokens import tokenizer_and_limits
    from ...ner.words import have_words, read_vectors

    check_folder_target("--out", out)
    prepare(threads, device)
    tell = (lambda line: None) if as_json else say
    read = reader(format, column, tag_names)
    examples = read(data)
    labels = labels_of(examples)
    if not labels:
        raise ValueError(f"{data}: file must hold at least one entity to learn from, got none")
    examples, dev_examples = hold_out(examples, data) if dev is None else (examples, read(dev, labels=labels))
    texts = [example.text for example in examples]
    spaced = have_words(texts)
    if encoder is None:
        encoder = "convolution" if (tokens or ("words" if spaced else "")) == "words" else "bilstm"
    folder = None if encoder in ("convolution", "bilstm", "transformer") else Path(encoder)
    if tokens is None:
        tokens = "words" if spaced and folder is None else "characters"
    kind = "pretrained" if folder else encoder
    table = read_vectors(vectors) if vectors else None
    usual = RECIPES[kind]
    tokenizer, max_length = tokenizer_and_limits(folder, tokens, texts, max_length, table.words if table else ())
    model_config = SpanConfig(
        labels=labels, vocab=tokenizer.get_vocab_size(), encoder=kind, encoder_positions=encoder_positions,
        dim=dim or usual.dim, layers=layers, heads=heads, dropout=usual.dropout if dropout is None else dropout,
        head=head or usual.head, head_dim=head_dim, rotary=rotary, words=folder is None and tokens == "words",
        vectors=table.width if table else 0,
        max_length=max_length, overlap=max_length // 4 if overlap is None else overlap,
    )  # fmt: skip
    if folder is None:
        tell(f"model: {kind} on {tokens}, {layers} layers of width {model_config.dim}")
    results = []
    for number in seed or [0]:
        config = TrainConfig(
            seed=number, epochs=epochs or usual_epochs(len(examples)), minutes=minutes,
            batch=batch or usual_batch(len(examples)), lr=usual.lr if lr is None else lr, head_lr=head_lr,
            warmup=warmup, weight_decay=weight_decay, clip=clip, average=average, patience=patience,
            threshold=threshold, mode=mode or usual_mode(examples), bfloat16=bfloat16,
        )  # fmt: skip
        target = out / f"seed{number}" if len(seed or [0]) > 1 else out
        result = train_one(
            new_model(model_config, number, folder, table), tokenizer, examples, dev_examples, config, target,
            device=device, checkpoint_every=checkpoint_every, progress=not as_json and sys.stderr.isatty(),
            say=tell,
        )  # fmt: skip
        results.append(_summary(number, result))
        if not as_json:
            say(_LINE.format(**results[-1]))
    if as_json:
        say_json(results)


def _summary(seed: int, result: Any) -> dict[str, Any]:
    score = result.dev
    return {
        "folder": str(result.folder), "seed": seed, "epochs": result.epochs, "best_epoch": result.best_epoch,
        "f1": score.f1, "precision": score.precision, "recall": score.recall, "seconds": result.seconds,
    }  # fmt: skip


_LINE = (
    "{folder}  dev F1 {f1:.4f}  P {precision:.4f}  R {recall:.4f}  (epoch {best_epoch} of {epochs}, {seconds:.0f} s)"
)
