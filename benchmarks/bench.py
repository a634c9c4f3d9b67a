"""What a rotation costs on this machine; `make bench` runs it, with ARGS for the options.

python benchmarks/bench.py --quick
"""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from phasor.support.plain_text import one_line, say
from phasor.support.whole_files import check_file_target


def bench(
    cases: Annotated[str, typer.Option(metavar="NAME,...", help="Which cases (default: all that can run).")] = "",
    rounds: Annotated[int, typer.Option(help="How often each is timed.")] = 30,
    threads: Annotated[int, typer.Option(help="Number of threads. With more than one, wall time is measured.")] = 1,
    kernel: Annotated[str, typer.Option(metavar="NAME", help="One of phasor's kernels.")] = "auto",
    out: Annotated[Path | None, typer.Option("--json", metavar="OUT", help="The file for the results.")] = None,
    against_goals: Annotated[bool, typer.Option("--against-goals", help="Print what each ratio should be.")] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="Tiny sizes and two rounds, only to see that it runs.")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, or cuda for a GPU, with cases of its own.")] = "cpu",
    plot: Annotated[Path | None, typer.Option(metavar="OUT", help="With cuda: the file for a picture.")] = None,
) -> None:
    """Measure what a rotation costs here, in units of a copy of the same bytes, and next to other libraries."""
    from timing import run, write

    for option, path in (("--json", out), ("--plot", plot)):
        if path is not None:
            check_file_target(option, path)
    if plot is not None and device == "cpu":
        raise ValueError("--plot draws a run on a GPU; add --device cuda")
    record = run(
        [name.strip() for name in cases.split(",") if name.strip()],
        rounds=min(rounds, 2) if quick else rounds,
        threads=threads,
        kernel=kernel,
        quick=quick,
        device=device,
        command=shlex.join(["benchmarks/bench.py", *sys.argv[1:]]),
        goals=against_goals,
        say=say,
    )
    if out is not None:
        write(record, out)
    if plot is not None:
        from timing.gpu.plot import plot as draw

        draw(record, plot)


if __name__ == "__main__":
    try:
        typer.run(bench)
    except ValueError as error:
        say(f"bench: {one_line(str(error))}", error=True)
        sys.exit(2)
