import json
import os
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

app = typer.Typer(no_args_is_help=True, help="Train small models on real text and see how far encodings reach.")

Runs = Annotated[list[Path], typer.Argument(metavar="RUN…", help="Folders of runs, or a folder that holds them.")]
TextFiles = Annotated[
    list[Path] | None, typer.Option("--text", metavar="PATH", help="Files or folders (default: those of the training).")
]
Glob = Annotated[str, typer.Option(help="Which files of a folder, by name.")]
Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
Threads = Annotated[int, typer.Option(min=1, help="Of each process; more pays for wide models on an idle machine.")]
Scored = Annotated[int, typer.Option(min=1, help="Held-out bytes to score at every length.")]


@app.command()
def train(
    text: Annotated[
        list[Path] | None, typer.Argument(metavar="[PATH…]", help="Files or folders (default: Python's own modules).")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Each run gets a folder in here.")] = Path("phasor-runs"),
    encoding: Annotated[list[str] | None, typer.Option(help="Repeat for several (default: rotary).")] = None,
    task: Annotated[str, typer.Option(help="text, copy or passkey.")] = "text",
    seed: Annotated[list[int] | None, typer.Option(min=0, help="Repeat for several (default: 0).")] = None,
    tokens: Annotated[int, typer.Option(min=1, help="Token budget of each run.")] = 1_433_600,
    length: Annotated[int, typer.Option(min=1, help="Training length.")] = 64,
    batch: Annotated[int, typer.Option(min=1, help="Sequences per step, over all processes.")] = 32,
    layers: Annotated[int, typer.Option(min=1)] = 2,
    dim: Annotated[int, typer.Option(min=1, help="Width of the model.")] = 96,
    heads: Annotated[int, typer.Option(min=1)] = 4,
    kv_heads: Annotated[int | None, typer.Option(min=1, help="Key heads (default: as many as heads).")] = None,
    base: Annotated[float, typer.Option(help="Base of the rotary frequencies.")] = 10_000.0,
    untied: Annotated[bool, typer.Option("--untied", help="An output matrix of its own.")] = False,
    lr: Annotated[float, typer.Option(help="Peak learning rate.")] = 3e-3,
    checkpoint_every: Annotated[int, typer.Option(min=1, help="Steps between checkpoints.")] = 100,
    glob: Glob = "*",
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Train one model per encoding and seed. Repeat a command that was killed: it goes on where it was."""
    from ..apps.lab import ModelConfig, RunConfig, read_text
    from ..apps.lab import train as train_one

    torch.set_num_threads(threads)
    first = os.environ.get("RANK", "0") == "0"
    source = read_text(text or (), glob=glob) if task == "text" else None
    about: dict[str, Any] = {"command": shlex.join(["phasor", *sys.argv[1:]])}
    if source:
        about |= {"text": ", ".join(source.names), "paths": [str(p.resolve()) for p in text or ()], "glob": glob}
    finished = []
    for name in encoding or ["rotary"]:
        model = ModelConfig(
            encoding=name, layers=layers, dim=dim, heads=heads, length=length, base=base, tied=not untied,
            kv_heads=heads if kv_heads is None else kv_heads,
        )  # fmt: skip
        for number in seed or [0]:
            config = RunConfig(
                model=model, task=task, seed=number, tokens=tokens, batch=batch, lr=lr,
                source=source.sha256 if source else "",
            )  # fmt: skip
            folder = out / config.name
            result = train_one(
                config, folder, source, checkpoint_every=checkpoint_every, about=about, progress=first and not as_json
            )
            finished.append(
                {
                    "folder": str(folder),
                    "steps": config.steps,
                    "resumed_at": result.resumed_at,
                    "loss": result.loss,
                    "tokens_per_second": result.tokens_per_second,
                }
            )
            if first and not as_json:
                how = "already finished" if result.resumed_at == config.steps else f"{config.steps} steps"
                print(f"{folder}  {how}, last loss {result.loss:.3f}")
    if first and as_json:
        print(json.dumps(finished, indent=2))


@app.command()
def evaluate(
    runs: Runs,
    text: TextFiles = None,
    times: Annotated[str, typer.Option(help="Context lengths, in training lengths.")] = "1,1.5,2,4,8,16",
    tokens: Scored = 65_536,
    stride: Annotated[
        int | None, typer.Option(min=1, help="Sliding windows that score this many last bytes (default: tiles).")
    ] = None,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Loss (of a task: accuracy) beyond the training length, written beside each run."""
    from ..apps.lab import evaluate as evaluate_one
    from ..apps.lab import load_model
    from ..apps.lab.results import EVALUATION, by_length, find_runs, gather
    from ..apps.runs import checkpoint

    torch.set_num_threads(threads)
    chosen = _numbers("times", times)
    results: dict[str, Any] = {}
    for folder in find_runs(runs):
        model, config = load_model(folder)
        source = _text_of(folder, text) if config.task == "text" else None
        results[str(folder)] = evaluate_one(model, config, source, times=chosen, tokens=tokens, stride=stride)
        checkpoint.write_json(folder / EVALUATION, results[str(folder)])
    if as_json:
        print(json.dumps(results, indent=2))
        return
    gathered = gather(runs)
    for task in ("text", "copy", "passkey"):
        value = "loss" if task == "text" else "accuracy"
        if table := by_length(gathered, task, value):
            _print_table(f"{task}: {value}", table)
            print(next(r["protocol"] for r in results.values() if r["task"] == task) + "\n")


@app.command()
def extend(
    runs: Runs,
    text: TextFiles = None,
    schemes: Annotated[str, typer.Option(help="Scaling schemes, with commas (default: all).")] = "",
    factors: Annotated[str, typer.Option(help="How many times the training length.")] = "2,4,8",
    tokens: Scored = 65_536,
    threads: Threads = 1,
    as_json: Json = False,
) -> None:
    """Stretch trained rotary models without fine-tuning, with every scaling scheme."""
    from ..apps.lab import SCHEMES, load_model
    from ..apps.lab import extend as extend_one
    from ..apps.lab.results import EXTENSION, extensions, find_runs, gather
    from ..apps.runs import checkpoint

    torch.set_num_threads(threads)
    names = [name.strip() for name in schemes.split(",")] if schemes else list(SCHEMES)
    multiples = [int(f) for f in _numbers("factors", factors)]
    results: dict[str, Any] = {}
    folders = find_runs(runs)
    for folder in folders:
        model, config = load_model(folder)
        if (config.model.encoding, config.task) != ("rotary", "text") and len(folders) > 1:
            continue
        results[str(folder)] = extend_one(
            model, config, _text_of(folder, text), schemes=names, factors=multiples, tokens=tokens
        )
        checkpoint.write_json(folder / EXTENSION, results[str(folder)])
    if not results:
        raise ValueError("runs must have a rotary one, trained on text, among them to be extended, got none")
    if as_json:
        print(json.dumps(results, indent=2))
        return
    _print_table("times the length", extensions(gather(list(map(Path, results))), "table", "factor"))
    print(next(iter(results.values()))["protocol"])


@app.command()
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a rotary run.")],
    out: Annotated[Path, typer.Argument(metavar="DIR", help="New folder.")],
    as_json: Json = False,
) -> None:
    """Write a rotary run as a folder that transformers loads as LlamaForCausalLM."""
    from ..apps.lab import export as export_one
    from ..apps.lab import load_model

    with _library():
        folder = export_one(load_model(run)[0], out)
    print(
        json.dumps({"folder": str(folder)})
        if as_json
        else f"transformers.LlamaForCausalLM.from_pretrained({str(folder)!r})"
    )


@app.command()
def report(
    runs: Runs,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the page, figures and numbers go.")] = Path(
        "phasor-report"
    ),
    as_json: Json = False,
) -> None:
    """One page with all figures, tables and protocols, with nothing outside it; figures and numbers beside it."""
    from ..apps.lab import report as write_report

    with _library():
        numbers = write_report(runs, out)
    print(json.dumps(numbers, indent=2) if as_json else f"open {(out / 'report.html').resolve()}")


@contextmanager
def _library() -> Iterator[None]:
    """A missing library becomes one line that says how to get it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise ValueError(f"this needs {error.name}; install it with: pip install 'phasor[lab]'") from None


def _text_of(folder: Path, given: list[Path] | None) -> Any:
    """The text that was named, or the one the run was trained on."""
    from ..apps.lab import read_text
    from ..apps.lab.train import RUN
    from ..apps.runs import checkpoint

    about = checkpoint.read_json(folder / RUN)["about"]
    return read_text(given or about.get("paths", ()), glob=about.get("glob", "*"))


def _numbers(name: str, words: str) -> list[float]:
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        raise ValueError(f"{name} must be numbers with commas, got {words!r}") from None


def _print_table(title: str, table: dict[str, Any]) -> None:
    from ..apps.lab.quick import table_text

    print(table_text(title, table))
