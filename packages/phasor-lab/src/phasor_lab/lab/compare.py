"""Encodings side by side: each trained from the same weights on the same text, each evaluated at the same lengths."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..run_folder.files import write_json
from . import results
from .data import read_text
from .encodings import ENCODINGS
from .evaluate import evaluate, extend
from .model import ModelConfig
from .report import mean_cell, report, table_text
from .run import RunConfig
from .train import load_model, train

TIMES = (1, 2, 4, 8)
SMALL = {"tokens": 160_000, "scored": 8192}  # of each encoding: some ten seconds


def compare(
    out_dir: str | Path,
    encodings: Sequence[str] = (),
    text: Sequence[str | Path] = (),
    *,
    tokens: int = SMALL["tokens"],
    scored: int = SMALL["scored"],
    times: Sequence[float] = TIMES,
    schemes: Sequence[str] = (),
    progress: bool = True,
    command: str = "",
    say: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Train and evaluate every encoding (those named, or all that are registered) and report into ``out_dir``.

    ``tokens`` is the budget of each (the time is nearly proportional), ``scored`` the held-out bytes at every length,
    ``times`` the lengths as multiples of the trained one; rotary models are also extended by ``schemes``. Killed and
    called again, it goes on where it was. Returns the numbers of ``report.json``.
    """
    source, out = read_text(text), Path(out_dir)
    about = {"command": command, "text": ", ".join(source.names)}
    folders = []
    for name in encodings or list(ENCODINGS):
        config = RunConfig(model=ModelConfig(encoding=name), tokens=tokens, batch=16, source=source.sha256)
        folders.append(folder := out / "runs" / config.name)
        with threads(1):
            train(config, folder, source, progress=progress, about=about)
            model, _ = load_model(folder)
            evaluation = evaluate(model, config, source, times=times, tokens=scored)
            write_json(folder / results.EVALUATION, evaluation)
            if schemes and config.model.rotary_spec:
                extension = extend(model, config, source, schemes=schemes, tokens=scored)
                write_json(folder / results.EXTENSION, extension)
    numbers = report(folders, out)
    for name, section in numbers["sections"].items():
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
