"""Conversions in processes of their own, to be killed. One request a line: the arguments of `run`, and ``after``.

``at``: the process kills itself before the so-manieth call that writes, syncs or changes a name; ``after``: it is
killed so many seconds after it began. All are forked from one process that has imported everything. Answers with the
exit code.
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
CALLS = *RENAMES, "fsync", "write", "copy_file_range"


def deadly(at: int, calls: tuple[str, ...]) -> None:
    """Let the call number ``at`` be the last one, and never happen."""
    count = 0

    def wrapped(call: Any) -> Any:
        def before(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*arguments, **options)

        return before

    for name in calls:
        setattr(os, name, wrapped(getattr(os, name)))


def run(
    source: str, target: str, to: str, force: bool = False, at: int = 0, limit: int = 0, names_only: bool = False
) -> None:
    deadly(at, RENAMES if names_only else CALLS)
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
