"""The whole lab in a minute and a half: three encodings trained, evaluated, the rotary one extended, one report."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..run_folder.files import write_json
from . import results
from .compare import run_once, said, threads
from .data import read_text
from .evaluate import extend
from .model import ModelConfig
from .report import report
from .run import RunConfig
from .train import load_model

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
        folders.append(folder := run_once(config, out, source, TIMES, scored, progress=progress, about=about))
        if encoding == "rotary":
            with threads(1):
                extension = extend(load_model(folder)[0], config, source, schemes=SCHEMES, tokens=scored)
            write_json(folder / results.EXTENSION, extension)
    return said(report(folders, out), out, say)
