"""The process that measures: a plan as JSON on stdin, a line of JSON on stdout for each row. Started by `run`."""

import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from phasor.support.cores import cores

from .measure import Case, measure
from .run import named


def rows_of(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    options = {name: plan[name] for name in ("memory", "rounds", "threads", "kernel", "quick")}
    for case in named(plan["cases"]):
        if reason := _obstacle(case):
            yield {"case": case.name, "skipped": reason}
            continue
        for dtype in case.dtypes:
            for layout in case.layouts:
                yield from ({"row": asdict(row)} for row in measure(case, dtype, layout, **options))


def _obstacle(case: Case) -> str:
    if case.threads > cores():
        return f"it needs {case.threads} cores, and there is {cores()} here"
    return case.obstacle()


def main() -> None:
    rows = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever a library prints goes to stderr, not between the rows
    try:
        for result in rows_of(json.load(sys.stdin)):
            rows.write(json.dumps(result) + "\n")
            rows.flush()
    except ValueError as error:
        rows.write(json.dumps({"error": str(error)}) + "\n")
        rows.flush()


if __name__ == "__main__":  # so that whoever imports every module of the package, as doctest does, starts nothing
    main()
