"""Conversions in processes of their own, to be killed. One request a line: the arguments of `run`.

The process kills itself before call number ``at`` of those that write, sync or change a name; with ``share`` inside
call number ``at`` of those that write, when that share of its bytes is written. All are forked from one process that
has imported everything. Answers with the exit code.
"""

import json
import os
import signal
import sys
from typing import Any

from phasor.tools.checkpoints import convert

WRITES = "write", "copy_file_range"
CALLS = "rename", "replace", "unlink", "rmdir", "mkdir", "fsync", *WRITES


def deadly(at: int, share: float | None) -> None:
    """Let call number ``at`` be the last one, and never happen, or only by a share of its bytes."""
    count = 0

    def wrapped(name: str, call: Any) -> Any:
        def before(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                if share is not None:
                    begun(name, call, arguments, share)
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return before

    for name in CALLS if share is None else WRITES:
        setattr(os, name, wrapped(name, getattr(os, name)))


def begun(name: str, call: Any, arguments: tuple[Any, ...], share: float) -> None:
    """A call that writes, of a share of its bytes."""
    if name == "write":
        fd, data = arguments
        call(fd, data[: int(share * len(data))])
    else:
        source, target, size, *rest = arguments
        call(source, target, int(share * size), *rest)


def run(source: str, target: str, force: bool = False, at: int = 0, share: float | None = None) -> None:
    deadly(at, share)
    convert(source, target, to="interleaved", force=force)


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        if not (child := os.fork()):
            code = 0
            try:
                run(**json.loads(line))
            except (ValueError, OSError) as error:
                print(error, file=sys.stderr, flush=True)
                code = 2
            os._exit(code)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
