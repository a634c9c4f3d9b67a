"""The command line: `phasor inspect`, `plan`, `demo`, `bench`, `golden`, `check`, `lab`, `ner`. One file each, thin."""

import os
import sys


def main() -> None:
    """Run the command line. A mistake of the user's is one line on stderr and exit code 2, never a traceback."""
    try:
        from .app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich", "click"):
            raise
        _stop(f"the command line needs {error.name}; install it with: pip install 'phasor[cli]'")
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # a terminal without ▁▂▃ gets question marks
    try:
        app(prog_name="phasor")
    except BrokenPipeError:  # the reader of our output has seen enough, as in `phasor inspect … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (ValueError, OSError) as error:
        _stop(" ".join(str(error).split()))


def _stop(message: str) -> None:
    print(f"phasor: {message}", file=sys.stderr)
    sys.exit(2)
