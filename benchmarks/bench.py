"""What a rotation costs on this machine; `make bench` runs it, with ARGS for the options.

python benchmarks/bench.py --quick
"""

import platform
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from timing import run, write

from phasor.support.plain_text import one_line, say
from phasor.support.whole_files import check_file_target

USED = "reused" if platform.libc_ver()[0] == "glibc" else ""


def bench(
    cases: Annotated[str, typer.Option(metavar="NAME,...", help="Which cases (default: the law of calls).")] = "",
    rounds: Annotated[int, typer.Option(help="How often each is timed.")] = 20,
    threads: Annotated[int, typer.Option(help="Number of threads. With more than one, wall time is measured.")] = 1,
    kernel: Annotated[str, typer.Option(metavar="NAME", help="One of phasor's kernels.")] = "auto",
    out: Annotated[Path | None, typer.Option("--json", metavar="OUT", help="The file for the results.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, two rounds, only to see that it runs.")] = False,
    memory: Annotated[str, typer.Option(help="reused, or fresh: cleared by the system. By glibc's allocator.")] = USED,
    device: Annotated[str, typer.Option(help="cpu, or cuda for a GPU, with cases of its own.")] = "cpu",
) -> None:
    """Measure what a rotation costs here, in units of a copy of the same bytes, and next to other libraries."""
    if out is not None:
        check_file_target("--json", out)
    names = [name.strip() for name in cases.split(",") if name.strip()]
    options: dict[str, Any] = {"rounds": rounds, "threads": threads, "kernel": kernel, "quick": quick}
    options |= {"device": device, "memory": memory if device == "cpu" else ""}
    record = run(names, command=shlex.join(["benchmarks/bench.py", *sys.argv[1:]]), say=say, **options)
    if out is not None:
        write(record, out)


if __name__ == "__main__":
    try:
        typer.run(bench)
    except ValueError as error:
        say(f"bench: {one_line(str(error))}", error=True)
        sys.exit(2)
