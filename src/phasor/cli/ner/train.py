import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ...support.plain_text import say, say_json
from ...support.whole_files import check_folder_target
from .options import Choice, Columns, Device, Format, Json, TagNames, Threads, prepare, reader

TrainFile = Annotated[Path, typer.Argument(metavar="TRAIN", help="File of texts with their entities.")]
DevFile = Annotated[Path, typer.Option(metavar="FILE", help="Development data: when to stop, which epoch to keep.")]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Folder of the model.")]
Encoder = Annotated[
    str, typer.Option(help="bilstm or transformer, from scratch, or the folder of a transformers encoder.")
]
Tokens = Annotated[
    Literal["characters", "bytes"], typer.Option(help="Of an encoder from scratch: one per character or per byte.")
]
Head = Annotated[Literal["efficient", "global-pointer"], typer.Option(help="EfficientGlobalPointer or GlobalPointer.")]
Rotary = Annotated[bool, typer.Option(help="Rotate the head's queries and keys.")]
EncoderPositions = Annotated[Literal["rotary", "none"], typer.Option(help="Positions of a transformer from scratch.")]
Dim = Annotated[int, typer.Option(min=8, help="Width of the encoder.")]
Layers = Annotated[int, typer.Option(min=1, help="Layers of an encoder from scratch.")]
AttentionHeads = Annotated[int, typer.Option(min=1, help="Attention heads of the transformer.")]
HeadDim = Annotated[int, typer.Option(min=2, help="Width of the head's queries and keys.")]
MaxLength = Annotated[int, typer.Option(min=1, help="Tokens of a window; longer texts are cut.")]
Overlap = Annotated[
    int | None, typer.Option(min=0, help="Tokens that two windows share (default: a quarter of a window).")
]
Dropout = Annotated[
    float | None, typer.Option(help="Of the encoder (default: bilstm 0.2, transformer 0.3, a folder 0.1).")
]
Epochs = Annotated[int, typer.Option(min=1, help="At most.")]
Batch = Annotated[int, typer.Option(min=1, help="Windows per step.")]
Lr = Annotated[
    float | None, typer.Option(help="Peak learning rate (default: bilstm 0.003, transformer 0.001, a folder 5e-5).")
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
LeastProbability = Annotated[float, typer.Option(min=0, max=1, help="Least probability of a span.")]
SpanMode = Annotated[Choice, typer.Option(help="All spans, none crossing, or none overlapping.")]
Seeds = Annotated[list[int] | None, typer.Option(min=0, help="Repeat for several: DIR gets a folder each.")]
Bfloat16 = Annotated[
    bool, typer.Option("--bfloat16", help="Train under autocast to bfloat16; on a CPU, LSTMs stay in float32.")
]
CheckpointEvery = Annotated[int, typer.Option(min=1, help="Steps between checkpoints; each epoch ends with one.")]


def train(
    data: TrainFile,
    dev: DevFile,
    out: Out,
    format: Format = None,
    column: Columns = None,
    tag_names: TagNames = None,
    encoder: Encoder = "bilstm",
    tokens: Tokens = "characters",
    head: Head = "efficient",
    rotary: Rotary = True,
    encoder_positions: EncoderPositions = "rotary",
    dim: Dim = 192,
    layers: Layers = 2,
    heads: AttentionHeads = 4,
    head_dim: HeadDim = 64,
    max_length: MaxLength = 256,
    overlap: Overlap = None,
    dropout: Dropout = None,
    epochs: Epochs = 10,
    batch: Batch = 32,
    lr: Lr = None,
    head_lr: HeadLr = None,
    warmup: Warmup = 0.05,
    weight_decay: WeightDecay = 0.01,
    clip: Clip = 1.0,
    average: Average = 0.99,
    patience: Patience = 5,
    threshold: LeastProbability = 0.5,
    mode: SpanMode = "nested",
    seed: Seeds = None,
    bfloat16: Bfloat16 = False,
    checkpoint_every: CheckpointEvery = 500,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a model. Repeat a command that was killed: it goes on where it was."""
    from ...apps.ner import SpanConfig, TrainConfig, labels_of
    from ...apps.ner import train as train_one
    from ...apps.ner.config import RECIPES
    from ...apps.ner.model import new_model
    from ...apps.ner.tokens import tokenizer_and_limits

    check_folder_target("--out", out)
    prepare(threads, device)
    read = reader(format, column, tag_names)
    examples = read(data)
    labels = labels_of(examples)
    if not labels:
        raise ValueError(f"{data}: file must hold at least one entity to learn from, got none")
    dev_examples = read(dev, labels=labels)
    folder = None if encoder in ("bilstm", "transformer") else Path(encoder)
    kind = "pretrained" if folder else encoder
    usual_dropout, usual_lr = RECIPES[kind]
    tokenizer, max_length = tokenizer_and_limits(folder, tokens, [e.text for e in examples], max_length)
    model_config = SpanConfig(
        labels=labels, vocab=tokenizer.get_vocab_size(), encoder=kind, encoder_positions=encoder_positions,
        dim=dim, layers=layers, heads=heads,
        dropout=usual_dropout if dropout is None else dropout,
        head=head, head_dim=head_dim, rotary=rotary, max_length=max_length,
        overlap=max_length // 4 if overlap is None else overlap,
    )  # fmt: skip
    results = []
    for number in seed or [0]:
        config = TrainConfig(
            seed=number, epochs=epochs, batch=batch, lr=usual_lr if lr is None else lr, head_lr=head_lr, warmup=warmup,
            weight_decay=weight_decay, clip=clip, average=average, patience=patience, threshold=threshold,
            mode=mode, bfloat16=bfloat16,
        )  # fmt: skip
        target = out / f"seed{number}" if len(seed or [0]) > 1 else out
        result = train_one(
            new_model(model_config, number, folder), tokenizer, examples, dev_examples, config, target,
            device=device, checkpoint_every=checkpoint_every, progress=not as_json and sys.stderr.isatty(),
            say=(lambda line: None) if as_json else say,
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
