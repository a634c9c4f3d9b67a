"""The whole lab in a minute and a half: three encodings trained, evaluated, the rotary one extended, one report."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ..run_folder.files import write_json
from . import results
from .data import read_text
from .evaluate import evaluate, extend
from .model import ModelConfig
from .report import mean_cell, report, table_text
from .run import RunConfig
from .train import load_model, train

COMPARED = ("sinusoidal", "rotary", "alibi")
SCHEMES = ("none", "linear", "ntk", "yarn")
TIMES = (1, 1.5, 2, 4, 8)


def quick(
    out_dir: str | Path,
    text: Sequence[str | Path] = (),
    *,
    tokens: int = 600_000,
    scored: int = 16_384,
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
    for encoding in COMPARED:
        config = RunConfig(model=ModelConfig(encoding=encoding), tokens=tokens, batch=16, source=source.sha256)
        folders.append(folder := out / "runs" / config.name)
        with threads(1):
            train(config, folder, source, progress=progress, about=about)
            model, _ = load_model(folder)
            write_json(folder / results.EVALUATION, evaluate(model, config, source, times=TIMES, tokens=scored))
            if encoding == "rotary":
                extension = extend(model, config, source, schemes=SCHEMES, tokens=scored)
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
