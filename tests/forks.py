"""A python that starts in no time: what ``EXECUTABLE -m MODULE ...`` or ``EXECUTABLE FILE ...`` runs is a fork of one
process that has torch imported.

Importing it costs three seconds of a processor, and a test of the command line a tenth of one. The executable hands its
folder, environment, words and standard streams over, and ends as the fork ends.
"""

import atexit
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import limited

COMMAND_LINE = "phasor.cli.app", "phasor.rotary.apply"
EXECUTABLE = """#!{python} -SE
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect({address!r})
    request = {{"words": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd()}}
    socket.send_fds(line, [json.dumps(request).encode() + b"\\n"], [0, 1, 2])
    code = line.makefile().readline()
sys.exit(int(code or 99))  # 99: whoever would say it died
"""


@contextmanager
def forking(folder: Path, modules: Sequence[str] = COMMAND_LINE) -> Iterator[Path]:
    """The executable, in ``folder``, and the process behind it, which has these modules imported."""
    executable, address = folder / "python", str(folder / "line")
    executable.write_text(EXECUTABLE.format(python=sys.executable, address=address))
    executable.chmod(0o755)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, __file__, address, str(executable), *modules]
    with limited.started(command, env=environment, stdout=limited.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        yield executable


def run(words: list[str], environment: dict[str, str], folder: str) -> None:
    """The module or the file, as python runs it; never returns."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    encoding = environment.get("PYTHONIOENCODING", "utf-8")
    sys.stdout, sys.stderr = (os.fdopen(number, "w", encoding=encoding) for number in (1, 2))
    while words[0].startswith("-") and words[0] != "-m":  # as -u
        words.pop(0)
    beside = folder if words[0] == "-m" else str(Path(words[0]).resolve().parent)
    sys.path[:0] = [beside, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        if words[0] == "-m":
            _, module, *sys.argv[1:] = words
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            sys.argv[:] = words
            runpy.run_path(words[0], run_name="__main__")
        sys.exit()
    except SystemExit as stop:
        if isinstance(stop.code, str):  # it is said
            raise
        end(stop.code or 0)


def end(code: int) -> NoReturn:
    """As python ends, but without taking apart all that it had imported, which would take a second."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except OSError:
        sys.exit(code)  # python has its own words for that
    os._exit(code)


def answer(line: socket.socket) -> None:
    """One request: a fork that runs it, and its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    data, streams, *_ = socket.recv_fds(line, 2**16, 3)
    while not data.endswith(b"\n"):
        data += line.recv(2**16)
    request: dict[str, Any] = json.loads(data)
    if not (child := os.fork()):
        os.setpgid(0, 0)
        line.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        run(**request)
    for stream in (0, 1, 2, *streams):
        os.close(stream)
    threading.Thread(target=end_with, args=(line, child), daemon=True).start()
    line.sendall(b"%d\n" % os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def end_with(line: socket.socket, child: int) -> None:
    """End the fork, with its stacks on stderr, when the executable was ended, which closes its line."""
    if line.recv(1) == b"":
        for what in (signal.SIGABRT, signal.SIGKILL):
            with suppress(ProcessLookupError):
                os.killpg(child, what)
            time.sleep(5)  # to write them


def main() -> None:
    address, sys.executable, *modules = sys.argv[1:]
    for module in modules:
        importlib.import_module(module)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who answer
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        print("ready", flush=True)
        while True:
            line, _ = server.accept()
            if not os.fork():
                server.close()
                answer(line)
                os._exit(0)
            line.close()


if __name__ == "__main__":
    main()
