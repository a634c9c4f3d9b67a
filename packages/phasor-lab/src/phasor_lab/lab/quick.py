"""The whole lab in a minute and a half: three encodings trained, evaluated, the rotary one extended, one report."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..run_folder.files import write_json
from . import results
from .data import Text, read_text
from .evaluate import evaluate, extend
from .model import ModelConfig
from .report import mean_cell, report, table_text
from .run import RunConfig
from .train import load_model, train


def quick(
    out_dir: str | Path,
    text: Sequence[str | Path] = (),
    *,
    encodings: Sequence[str] = ("sinusoidal", "rotary", "alibi"),
    schemes: Sequence[str] = ("none", "linear", "ntk", "yarn"),
    times: Sequence[float] = (1, 1.5, 2, 4, 8),
    tokens: int = 600_000,
    batch: int = 16,
    scored: int = 16_384,
    seed: int = 0,
    progress: bool = True,
    command: str = "",
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train, evaluate, extend and report into ``out_dir``; returns the numbers of ``report.json``.

    The text is the Python standard library's unless ``text`` names files. ``tokens`` is the budget of each model (the
    time is nearly proportional), ``scored`` the held-out bytes of every evaluation. Killed and called again, it goes on
    where it was.
    """
    out, source = Path(out_dir), read_text(text)
    about = {"command": command, "text": ", ".join(source.names)}
    folders = []
    for encoding in encodings:
        model_config = ModelConfig(encoding=encoding)
        config = RunConfig(model=model_config, seed=seed, tokens=tokens, batch=batch, source=source.sha256)
        folders.append(out / "runs" / config.name)
        with threads(1):
            train(config, folders[-1], source, progress=progress, about=about)
            _measure(folders[-1], source, schemes, times, scored)
    numbers = report(folders, out)
    for name, section in numbers["sections"].items():
        if name in ("loss_by_length", "extension_table"):
            say(table_text(name, section["curves"], mean_cell) + "\n")
    if numbers["training"]:
        say(numbers["training"])
    say(f"open {(out / 'report.txt').resolve()}")
    return numbers


@contextmanager
def threads(count: int) -> Iterator[None]:
    """torch's threads, for a while.

    Small models are fastest with one unless the machine is idle: threads that wait for one that another program has
    displaced spin (two of them, with two cores and three programs: a fifteenth of the speed of one).
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _measure(folder: Path, text: Text, schemes: Sequence[str], times: Sequence[float], scored: int) -> None:
    model, config = load_model(folder)
    evaluation = evaluate(model, config, text, times=times, tokens=scored)
    write_json(folder / results.EVALUATION, evaluation)
    if config.model.encoding == "rotary" and schemes:
        extension = extend(model, config, text, schemes=schemes, tokens=scored)
        write_json(folder / results.EXTENSION, extension)
