"""Processes that tests start: each has a limit, and ends with its children when the test does.

``make test`` gives every test a limit as well (pytest-timeout), so a test may wait for a process in any way.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

LIMIT = 600.0  # seconds: what takes longest takes some fifty on a machine of its own
TAIL = 10_000  # characters of each output that a test shows
PIPE = subprocess.PIPE
Process = subprocess.Popen


def run(
    command: Sequence[Any] | str, *, limit: float = LIMIT, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`; outputs are captured as text, and an ``AssertionError`` says what went wrong and where."""
    if "encoding" not in options:
        options["text"] = True
    with started(command, **{"stdout": PIPE, "stderr": PIPE, **options}) as process:
        try:
            out, err = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGABRT)  # Python answers with the stacks of its threads
            out, err = process.communicate()
            raise AssertionError(f"{command} had not ended after {limit:g} s{_shown(out, err)}") from None
    if check and process.returncode:
        raise AssertionError(f"{command} ended with {process.returncode}{_shown(out, err)}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextmanager
def started(command: Sequence[Any] | str, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """A process, in a session of its own, for as long as the block takes."""
    environment = {**(options.pop("env", None) or os.environ), "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(command, env=environment, start_new_session=True, **options) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


class Child:
    """A function in a process that was forked from one with modules imported."""

    def __init__(self, process: ForkServerProcess, output: Path) -> None:
        self._process, self._output = process, output

    @property
    def exitcode(self) -> int | None:
        return self._process.exitcode

    @property
    def said(self) -> str:
        """What it has printed so far, on either stream."""
        return self._output.read_text(errors="replace")

    def kill(self) -> None:
        self._process.kill()

    def join(self) -> None:
        """Wait for its end; what it said is printed if that is not a good one."""
        self._process.join(LIMIT)
        if self._process.exitcode:
            print(self.said, file=sys.stderr)
        assert self._process.exitcode is not None, f"{self._process.name} had not ended after {LIMIT:g} s{self.said}"


@contextmanager
def children(*modules: str) -> Iterator[Callable[..., Child]]:
    """What starts ``function(*arguments)`` in a process that has these modules; the block's end is theirs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    started: list[Child] = []
    with tempfile.TemporaryDirectory() as folder:

        def start(function: Callable[..., object], *arguments: object) -> Child:
            output = Path(folder, str(len(started)))
            output.touch()
            process = context.Process(target=_call, args=(output, function, *arguments), name=function.__name__)
            process.start()
            started.append(Child(process, output))
            return started[-1]

        try:
            yield start
        finally:
            for child in started:
                child.kill()
                child.join()


def _call(output: Path, function: Callable[..., object], *arguments: object) -> None:
    """The function, with what it says in a file."""
    with open(output, "w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    function(*arguments)


def _shown(*outputs: str | None) -> str:
    return "".join(f"\n{text[-TAIL:]}" for text in outputs if text)
