"""Processes that tests start have a limit: after it they and all their children are ended, and the test says where they
stood.

The stacks are those of faulthandler, which ``PYTHONFAULTHANDLER`` switches on in every Python that is started here, and
which writes them on SIGABRT. `test_limited.py` sees to it that no other module of the tests starts a process.
"""

import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import IO, Any

LIMIT = 600.0  # seconds: what takes longest takes some fifty on a machine of its own
GRACE = 10.0  # seconds to write stacks
TAIL = 10_000  # characters of each output that a test shows
PIPE, STDOUT = subprocess.PIPE, subprocess.STDOUT


class TooLong(AssertionError):
    """A process had not ended after its limit."""


class Process(subprocess.Popen[Any]):
    """A process in a session of its own; what it says on stderr goes to a file unless that is asked for."""

    def __init__(self, command: Sequence[Any] | str, **options: Any) -> None:
        self.complaints: IO[bytes] | None = None
        if "stderr" not in options:
            self.complaints = options["stderr"] = tempfile.TemporaryFile()  # noqa: SIM115 (`started` closes it)
        environment = {**(options.pop("env", None) or os.environ), "PYTHONFAULTHANDLER": "1"}
        super().__init__(command, env=environment, start_new_session=True, **options)

    def last_words(self) -> str:
        """What it said that nobody has read, when it has ended."""
        said = []
        with suppress(subprocess.TimeoutExpired, ValueError):  # held open by one that is none of its children; closed
            said = [text.decode(errors="replace") if isinstance(text, bytes) else text or ""
                for text in self.communicate(timeout=GRACE)]  # fmt: skip
        if self.complaints is not None:
            self.complaints.seek(0)
            said.append(self.complaints.read().decode(errors="replace"))
        return _shown(*said)


def run(
    command: Sequence[Any] | str, *, limit: float = LIMIT, check: bool = False, **options: Any
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run`; both outputs are captured as text unless the options say otherwise.

    Raises ``TooLong``, and with ``check`` an ``AssertionError`` where the exit code is not 0.
    """
    if "encoding" not in options:
        options["text"] = True
    with started(command, **{"stdout": PIPE, "stderr": PIPE, **options}) as process:
        with _ended_after(limit, process.pid) as late:
            out, err = process.communicate()
        if late.is_set():
            raise TooLong(f"{command} had not ended after {limit:g} s{_shown(out, err)}")
    if check and process.returncode:
        raise AssertionError(f"{command} ended with {process.returncode}{_shown(out, err)}")
    return subprocess.CompletedProcess(command, process.returncode, out, err)


@contextmanager
def started(command: Sequence[Any] | str, **options: Any) -> Iterator[Process]:
    """A process for as long as the block takes. What waits for it inside the block does so in `watched`."""
    with Process(command, **options) as process:
        try:
            yield process
        finally:
            _kill(_family(process.pid, process.poll() is not None))
            process.wait()
            if process.complaints is not None:
                process.complaints.close()


@contextmanager
def watched(*processes: Process, limit: float = LIMIT) -> Iterator[None]:
    """Raise ``TooLong`` if the block, which waits for these processes, takes longer; they are ended then."""
    try:
        with _ended_after(limit, *(process.pid for process in processes)) as late:
            yield
    finally:
        if late.is_set():  # before what the block makes of a process that died
            told = "".join(f"\n{process.args}{process.last_words()}" for process in processes)
            raise TooLong(f"nothing after {limit:g} s of{told}")


class Child:
    """A function in a process that was forked from one with modules imported."""

    def __init__(self, process: ForkServerProcess, output: Path) -> None:
        assert process.pid is not None
        self._process, self._output, self._pid = process, output, process.pid

    @property
    def exitcode(self) -> int | None:
        return self._process.exitcode

    @property
    def said(self) -> str:
        """What it has printed so far, on either stream."""
        return self._output.read_text(errors="replace")

    def kill(self) -> None:
        if self._process.exitcode is None:
            _kill(_family(self._pid))

    def join(self, limit: float = LIMIT) -> None:
        """Wait for its end; what it said is printed if that is not a good one."""
        with _ended_after(limit, self._pid) as late:
            self._process.join()
        if late.is_set():
            raise TooLong(f"{self._process.name} had not ended after {limit:g} s{_shown(self.said)}")
        if self._process.exitcode:
            print(self.said, file=sys.stderr)


@contextmanager
def children(*modules: str) -> Iterator[Callable[..., Child]]:
    """What starts ``function(*arguments)`` in a process that has these modules; the block's end is theirs."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    started: list[Child] = []
    with tempfile.TemporaryDirectory() as at:
        folder = Path(at)

        def start(function: Callable[..., object], *arguments: object) -> Child:
            output = folder / str(len(started))
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
    """The function, in a session of its own, with what it says and its stacks in a file."""
    os.setsid()
    with open(output, "w") as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
    faulthandler.enable()
    function(*arguments)


@contextmanager
def _ended_after(limit: float, *leaders: int) -> Iterator[threading.Event]:
    """End these processes and all of theirs if the block takes longer; the event is set then."""
    late, done = threading.Event(), threading.Event()

    def watch() -> None:
        if done.wait(limit):
            return
        late.set()
        family = [pid for leader in leaders for pid in _family(leader)]
        end = time.monotonic() + GRACE
        for pid in family:  # one after the other: they may write into one file
            _send([pid], signal.SIGABRT)
            while _runs(pid) and time.monotonic() < end:
                time.sleep(0.01)
        _kill(family)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield late
    finally:
        done.set()
        watcher.join()


def _family(leader: int, gone: bool = False) -> list[int]:
    """The process, its descendants, and all that are in its session; of one that is gone, those it left there."""
    parents, sessions = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has just ended
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            parents[int(stat.parent.name)], sessions[int(stat.parent.name)] = int(fields[1]), int(fields[3])
    if gone and leader in parents:  # another process has its number now
        return []
    family = {leader, *(pid for pid, session in sessions.items() if session == leader)}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sorted(family)


def _runs(pid: int) -> bool:
    """Whether it has not ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def _kill(family: Sequence[int]) -> None:
    _send(family, signal.SIGKILL)


def _send(family: Sequence[int], what: signal.Signals) -> None:
    for pid in family:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, what)


def _shown(*outputs: str | bytes | None) -> str:
    texts = (text.decode(errors="replace") if isinstance(text, bytes) else text for text in outputs)
    return "".join(f"\n{text[-TAIL:]}" for text in texts if text)
