import json
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from .options import Choice, Columns, Device, Format, Json, TagNames, Threads, prepare, reader


def train(
    data: Annotated[Path, typer.Argument(metavar="TRAIN", help="File of texts with their entities.")],
    dev: Annotated[Path, typer.Option(metavar="FILE", help="Development data: when to stop, which epoch to keep.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the model.")],
    format: Format = None,
    column: Columns = None,
    tag_names: TagNames = None,
    encoder: Annotated[
        str, typer.Option(help="bilstm or transformer, from scratch, or the folder of a transformers encoder.")
    ] = "bilstm",
    tokens: Annotated[Literal["characters", "bytes"], typer.Option(help="Of an encoder from scratch.")] = "characters",
    head: Annotated[Literal["efficient", "global-pointer"], typer.Option()] = "efficient",
    rotary: Annotated[bool, typer.Option(help="Rotate the head's queries and keys.")] = True,
    encoder_positions: Annotated[Literal["rotary", "none"], typer.Option(help="Of the transformer.")] = "rotary",
    dim: Annotated[int, typer.Option(min=8, help="Width of the encoder.")] = 192,
    layers: Annotated[int, typer.Option(min=1)] = 2,
    heads: Annotated[int, typer.Option(min=1, help="Attention heads of the transformer.")] = 4,
    head_dim: Annotated[int, typer.Option(min=2, help="Width of the head's queries and keys.")] = 64,
    max_length: Annotated[int, typer.Option(min=1, help="Tokens of a window; longer texts are cut.")] = 256,
    overlap: Annotated[
        int | None, typer.Option(min=0, help="Tokens that two windows share (default: a quarter of a window).")
    ] = None,
    dropout: Annotated[float | None, typer.Option(help="(default: bilstm 0.2, transformer 0.3, a folder 0.1)")] = None,
    epochs: Annotated[int, typer.Option(min=1)] = 10,
    batch: Annotated[int, typer.Option(min=1)] = 32,
    lr: Annotated[
        float | None, typer.Option(help="Peak learning rate (default: bilstm 0.003, transformer 0.001, a folder 5e-5).")
    ] = None,
    head_lr: Annotated[
        float | None, typer.Option(help="That of the head (default: on a folder's encoder 0.001, else lr).")
    ] = None,
    warmup: Annotated[float, typer.Option(help="Share of the steps in which it rises; then a cosine to 0.")] = 0.05,
    weight_decay: Annotated[float, typer.Option()] = 0.01,
    clip: Annotated[float, typer.Option(help="Largest norm of the gradient.")] = 1.0,
    average: Annotated[float, typer.Option(help="Decay of the running mean of the weights; 0 for none.")] = 0.99,
    patience: Annotated[int, typer.Option(min=0, help="Epochs without a better dev F1 until it stops; 0: never.")] = 5,
    threshold: Annotated[float, typer.Option(min=0, max=1, help="Least probability of a span.")] = 0.5,
    mode: Annotated[Choice, typer.Option(help="All spans, none crossing, or none overlapping.")] = "nested",
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Repeat for several: DIR gets a folder each.")] = None,
    bfloat16: Annotated[bool, typer.Option("--bfloat16", help="Autocast to bfloat16.")] = False,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints, beside the epochs'.")] = 500,
    device: Device = "cpu",
    threads: Threads = None,
    as_json: Json = False,
) -> None:
    """Train a model. Repeat a command that was killed: it goes on where it was."""
    from ...apps.ner import ModelConfig, TrainConfig, labels_of
    from ...apps.ner import train as train_one
    from ...apps.ner.config import RECIPES
    from ...apps.ner.model import new_model
    from ...apps.ner.tokens import tokenizer_and_limits

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
    model_config = ModelConfig(
        labels=labels, vocab=tokenizer.get_vocab_size(), encoder=kind, encoder_positions=encoder_positions,
        dim=dim, layers=layers, heads=heads,
        dropout=usual_dropout if dropout is None else dropout,
        head=head, head_dim=head_dim, rotary=rotary, max_length=max_length,
        overlap=max_length // 4 if overlap is None else overlap,
    )  # fmt: skip
    finished = []
    for number in seed or [0]:
        config = TrainConfig(
            seed=number, epochs=epochs, batch=batch, lr=usual_lr if lr is None else lr, head_lr=head_lr, warmup=warmup,
            weight_decay=weight_decay, clip=clip, average=average, patience=patience, threshold=threshold,
            mode=mode, bfloat16=bfloat16,
        )  # fmt: skip
        place = out / f"seed{number}" if len(seed or [0]) > 1 else out
        result = train_one(
            new_model(model_config, number, folder), tokenizer, examples, dev_examples, config, place,
            device=device, checkpoint_every=checkpoint_every, progress=not as_json and sys.stderr.isatty(),
            say=(lambda line: None) if as_json else print,
        )  # fmt: skip
        score = result.dev
        finished.append({
            "folder": str(place), "seed": number, "epochs": result.epochs, "best_epoch": result.best_epoch,
            "f1": score.f1, "precision": score.precision, "recall": score.recall, "seconds": result.seconds,
        })  # fmt: skip
        if not as_json:
            print(
                f"{place}  dev F1 {score.f1:.4f}  P {score.precision:.4f}  R {score.recall:.4f}  "
                f"(epoch {result.best_epoch} of {result.epochs}, {result.seconds:.0f} s)"
            )
    if as_json:
        print(json.dumps(finished, indent=2))
