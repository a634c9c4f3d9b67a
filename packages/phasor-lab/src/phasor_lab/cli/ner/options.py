"""What the commands share: options, and the preparation of a run."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from ..threads import set_threads

Columns = Annotated[
    list[int] | None,
    typer.Option("--column", help="Of CoNLL: a column of tags, counted from 0; repeat it for several (default: all)."),
]
Threads = Annotated[int | None, typer.Option(min=1, help="Threads (default: as many as there are cores).")]
Choice = Literal["all", "nested", "flat"]
Mode = Annotated[
    Choice | None, typer.Option(help="All spans, none crossing, or none overlapping (default: that of the training).")
]
Threshold = Annotated[
    float | None, typer.Option(min=0, max=1, help="Least probability of a span (default: that of the training).")
]
Device = Annotated[str, typer.Option(help="As torch names it: cpu, cuda, …")]
ModelFolder = Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained model.")]
Json = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def prepare(threads: int | None, device: str) -> None:
    """The number of threads; and a missing device is one line that says so."""
    if threads is not None:
        set_threads(threads)
    import torch

    try:
        torch.zeros(1, device=device).item()  # "meta" gives nothing back
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).splitlines()[0].partition(". ")[0]
        raise ValueError(f"--device must be one that torch can compute on here, got {device!r}: {reason}") from None
