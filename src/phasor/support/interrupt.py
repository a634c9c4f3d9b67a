"""Ctrl-C ends the command line with one line and exit code 130, also while torch is still being imported."""

import os
import signal
import sys
from types import FrameType

CODE = 128 + signal.SIGINT
LINE = "phasor: stopped"


class Stopped(SystemExit):
    """Ctrl-C. No KeyboardInterrupt, for which libraries have answers of their own."""


def listen() -> None:
    """Take Ctrl-C over, if this process is the command line and nobody else has done so."""
    if is_command(sys.argv, sys.orig_argv) and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, stop)


def is_command(argv: list[str], orig_argv: list[str]) -> bool:
    """Whether a process was started as ``phasor …`` or ``python -m phasor …``.

    >>> is_command(["/usr/bin/phasor", "lab"], []), is_command(["-m"], ["python", "-m", "phasor", "lab"])
    (True, True)
    >>> is_command(["train.py"], ["python", "train.py"]), is_command(["-m"], ["python", "-m", "mine"])
    (False, False)
    """
    if argv[:1] == ["-m"]:  # as long as the package itself is being imported
        return "phasor" in orig_argv and orig_argv[orig_argv.index("phasor") - 1] == "-m"
    return bool(argv) and os.path.basename(argv[0]) in ("phasor", "phasor.exe")


def stop(signum: int, frame: FrameType | None) -> None:
    """Raise `Stopped`, so that what is open gets closed; while something is imported there is nothing to close, and
    the module that asked for the import might catch it."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            leave()
        frame = frame.f_back
    raise Stopped(CODE)


def leave(*_: object) -> None:
    """End the process now."""
    os.write(2, f"{LINE}\n".encode())
    os._exit(CODE)
