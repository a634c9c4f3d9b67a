import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer


def bench(
    cases: Annotated[str, typer.Option(metavar="NAME,...", help="Which cases (default: all that can run).")] = "",
    rounds: Annotated[int, typer.Option(help="How often each is timed.")] = 30,
    threads: Annotated[int, typer.Option(help="With more than one, wall time is measured.")] = 1,
    kernel: Annotated[str, typer.Option(metavar="NAME", help="One of phasor's kernels.")] = "auto",
    out: Annotated[Path | None, typer.Option("--json", metavar="OUT", help="The file for the results.")] = None,
    against_goals: Annotated[bool, typer.Option("--against-goals", help="Print what each ratio should be.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, two rounds: only to see that it runs.")] = False,
    device: Annotated[str, typer.Option(help="Only cpu so far.")] = "cpu",
) -> None:
    """Measure what a rotation costs here, in units of a copy of the same bytes, and next to other libraries."""
    from ..bench import run, write

    if out is not None and (out.is_dir() or not out.parent.is_dir()):
        raise ValueError(f"--json must be a file in a folder that exists, got {str(out)!r}; make the folder first")
    record = run(
        [name.strip() for name in cases.split(",") if name.strip()],
        rounds=min(rounds, 2) if quick else rounds,
        threads=threads,
        kernel=kernel,
        quick=quick,
        device=device,
        command=shlex.join(["phasor", *sys.argv[1:]]),
        goals=against_goals,
        say=lambda line: print(line, flush=True),
    )
    if out is not None:
        write(record, out)
