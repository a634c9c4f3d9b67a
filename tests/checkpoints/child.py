"""Conversions in processes of their own, to be killed. One request a line: the arguments of `run`, and ``after``.

``at``: the process kills itself before the so-manieth call that writes, syncs or changes a name; with ``share`` inside
the so-manieth call that writes, when that share of its bytes is written. ``after``: it is killed so many seconds after
it began. All are forked from one process that has imported everything. Answers with the exit code.
"""

import json
import os
import resource
import signal
import sys
import time
from typing import Any

from phasor.tools.checkpoints import convert, convert_in_place

RENAMES = "rename", "replace", "unlink"
WRITES = "write", "copy_file_range"
CALLS = *RENAMES, "fsync", *WRITES


def deadly(at: int, calls: tuple[str, ...], share: float | None) -> None:
    """Let the call number ``at`` be the last one, and never happen, or only by a share of its bytes."""
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

    for name in calls:
        setattr(os, name, wrapped(name, getattr(os, name)))


def begun(name: str, call: Any, arguments: tuple[Any, ...], share: float) -> None:
    """A call that writes, of a share of its bytes."""
    if name == "write":
        fd, data = arguments
        call(fd, data[: int(share * len(data))])
    else:
        source, target, size, *rest = arguments
        call(source, target, int(share * size), *rest)


def run(
    source: str,
    target: str,
    to: str,
    force: bool = False,
    at: int = 0,
    limit: int = 0,
    names_only: bool = False,
    share: float | None = None,
) -> None:
    deadly(at, WRITES if share is not None else RENAMES if names_only else CALLS, share)
    if limit:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    if target:
        convert(source, target, to=to, force=force)
    else:
        convert_in_place(source, to=to)


if __name__ == "__main__":
    print("ready", flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        after = request.pop("after")
        if not (child := os.fork()):
            code = 0
            try:
                run(**request)
            except (ValueError, OSError) as error:
                print(json.dumps(str(error)), file=sys.stderr, flush=True)
                code = 2
            os._exit(code)
        if after:
            time.sleep(after)
            os.kill(child, signal.SIGKILL)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
