"""Encodings side by side: each trained from the same weights on the same text, each evaluated at the same lengths."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..run_folder.training import threads
from .data import read_text
from .encodings import ENCODINGS
from .model import ModelConfig
from .report import report, summary
from .run import RunConfig
from .train import train

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
    numbers = report(folders, out, source, times=times, schemes=schemes, tokens=scored)
    say(summary(numbers, out))
    return numbers
