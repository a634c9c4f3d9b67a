"""`phasor lab train`: one small model for each encoding and seed."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import say, say_json
from phasor.support.whole_files import check_folder_target

from ..threads import set_threads

TrainingText = Annotated[
    list[Path] | None, typer.Option("--text", metavar="PATH", help="Files or folders (default: Python's own modules).")
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="Each run gets a folder in here.")]
Encodings = Annotated[list[str] | None, typer.Option(help="Repeat for several (default: rotary).")]
Seeds = Annotated[list[int] | None, typer.Option(min=0, help="Repeat for several (default: 0).")]
Tokens = Annotated[int, typer.Option(min=1, help="Token budget of each run.")]
Length = Annotated[int, typer.Option(min=1, help="Training length.")]
Batch = Annotated[int, typer.Option(min=1, help="Sequences per step, over all processes.")]
Layers = Annotated[int, typer.Option(min=1, help="Layers of the model.")]
Dim = Annotated[int, typer.Option(min=1, help="Width of the model.")]
Heads = Annotated[int, typer.Option(min=1, help="Attention heads.")]
Lr = Annotated[float, typer.Option(help="Peak learning rate.")]
Fsdp = Annotated[bool, typer.Option("--fsdp", help="Under torchrun: shard weights, gradients and moments too.")]


def train(
    text: TrainingText = None,
    out: Out = Path("phasor-runs"),
    encoding: Encodings = None,
    seed: Seeds = None,
    tokens: Tokens = 1_433_600,
    length: Length = 64,
    batch: Batch = 32,
    layers: Layers = 2,
    dim: Dim = 96,
    heads: Heads = 4,
    lr: Lr = 3e-3,
    fsdp: Fsdp = False,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads of each process; more pays for wide models on an idle machine.")
    ] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Train one model per encoding and seed. Repeat a command that was killed: it goes on where it was.

    Under torchrun the processes share each batch; with --fsdp also weights, gradients and moments.
    """
    from ...lab import ModelConfig, RunConfig, read_text
    from ...lab import train as train_one
    from ...processes import process_group

    check_folder_target("--out", out)
    set_threads(threads)
    files = text or []
    finished = []
    source = read_text(files)
    about = {
        "command": shlex.join(["phasor", *sys.argv[1:]]), "text": ", ".join(source.names),
        "paths": [str(path.resolve()) for path in files],
    }  # fmt: skip
    models = [
        ModelConfig(encoding=name, layers=layers, dim=dim, heads=heads, length=length)
        for name in encoding or ["rotary"]
    ]
    configs = [
        RunConfig(
            model=model, seed=number, tokens=tokens, batch=batch, lr=lr, source=source.sha256,
        )
        for model in models for number in seed or [0]
    ]  # fmt: skip
    with process_group() as group:
        first = group.first
        for config in configs:
            folder = out / config.name
            result = train_one(config, folder, source, about=about, progress=first and not as_json, fsdp=fsdp)
            finished.append({
                "folder": str(folder), "steps": config.steps, "resumed_at": result.resumed_at, "loss": result.loss,
                "tokens_per_second": result.tokens_per_second,
            })  # fmt: skip
            if first and not as_json:
                how = "already finished" if result.resumed_at == config.steps else f"{config.steps} steps"
                say(f"{folder}  {how}, last loss {result.loss:.3f}")
    if first and as_json:
        say_json(finished)
