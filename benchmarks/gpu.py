"""All that a GPU has to show, in one command and one file: bits first, then times. `make gpu` runs it.

    python benchmarks/gpu.py                      within eight minutes, into benchmarks/results/gpu_NAME.json
    python benchmarks/gpu.py --minutes 4 --json gpu.json

1. The law of kernels (`tests/calls.py`) on random calls, good ones and bad, some processes side by side, for a third of
   the time: results, gradients and memory of the Triton kernel are those of the reference, to the bit.
2. `tests/gpu`: the laws by name, and what only a card shows (graphs, more than 2^31 elements, compiled code).
3. The times of `bench.py --device cuda`, beside the libraries that are installed.

A part that stands in the file already, by the same versions on the same card, is not run again; what there was no time
for is named under ``skipped``, and the next run takes it up. Where there is no GPU, Triton interprets the kernel:
everything runs on tiny sizes, and nothing is written unless ``--json`` says where.
"""

import collections
import multiprocessing
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

ROOT = Path(__file__).resolve().parents[1]
ON_CARD = torch.cuda.is_available()
if not ON_CARD:
    os.environ["TRITON_INTERPRET"] = "1"  # before Triton is imported, also in the processes that are started here
sys.path.insert(0, str(ROOT / "tests"))

from timing import Record, read, run, write  # noqa: E402
from timing.gpu import CASES, CudaClock, HostClock  # noqa: E402
from timing.result import line  # noqa: E402

from phasor.support.plain_text import say  # noqa: E402
from phasor.support.whole_files import check_file_target  # noqa: E402

# Of good calls; the last: of all, bad too.
KINDS = ("tables", "phases", "packed", "norm", "cache", "latent", "move", "")
NO_TIME = "no time was left; run it again"
LEAST = 15  # seconds that are left for a part that is begun
SHOWN = 5  # differences that are kept of each kind


def interpreted() -> None:
    """In each process that rotates, where there is no GPU."""
    if not ON_CARD:
        from interpreted import FEW_PROGRAMS, round_as_a_gpu_does
        from phasor.rotary.kernels.triton import launch

        round_as_a_gpu_does()
        for name, value in FEW_PROGRAMS.items():
            setattr(launch, name, value)


def law(kind: str, seconds: float, device: str) -> dict[str, Any]:
    """Random calls of one kind for so long: how many there were of each outcome, and what was not as the law says."""
    import logging
    import warnings

    from calls import TRITON, built, check

    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    interpreted()
    small, seen = device == "cpu", collections.Counter[str]()
    wrong: list[str] = []
    number, end = 0, time.monotonic() + seconds
    while len(wrong) < SHOWN and (time.monotonic() < end or number == 0):
        seed = f"{kind or 'any'} {number}"
        try:
            difference = check(
                lambda seed=seed: built(seed, kind or None, not kind, small, device),  # type: ignore[misc]
                TRITON,
                lambda what: seen.update([what]),
            )
        except Exception as error:  # of the device: whatever this process asks it for next, it raises again
            wrong.append(f"{seed}: {type(error).__name__}: {error}"[:400])
            break
        wrong += [f"{seed}: {difference}"[:400]] if difference else []
        number += 1
    return {"calls": number, "seen": dict(sorted(seen.items())), "wrong": wrong}


def laws(seconds: float, device: str) -> dict[str, Any]:
    """Every kind in a process of its own: a fault of the device ends what runs in one."""
    found: dict[str, Any] = {}
    with ProcessPoolExecutor(len(KINDS), multiprocessing.get_context("spawn")) as pool:
        started = {kind: pool.submit(law, kind, seconds, device) for kind in KINDS}
        for kind, future in started.items():
            name = f"law: {kind or 'all kinds, bad ones too'}"
            try:
                found[name] = future.result()
            except Exception as error:  # the process died
                found[name] = {"calls": 0, "seen": {}, "wrong": [f"{type(error).__name__}: {error}"]}
    return found


def named_tests(seconds: float) -> dict[str, Any]:
    """`tests/gpu`, as pytest counts them; ``wrong`` has the names of those that failed."""
    options = ["-q", "-p", "no:cacheprovider", "-o", "addopts=", "-o", "filterwarnings=", "-o", "minversion=", "-rfE"]
    tests = "tests/gpu" if ON_CARD else "tests/gpu/test_plans.py"  # the others take minutes, interpreted
    options += ["--ignore", "tests/gpu/test_interpreted.py"]  # which is about machines without a GPU
    options += ["-n", "8"] if ON_CARD and find_spec("xdist") else []
    command = [sys.executable, "-m", "pytest", tests, "-m", "not slow", *options]
    try:
        wide = {**os.environ, "COLUMNS": "400"}  # of the lines that name what failed
        ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=seconds, env=wide)
    except subprocess.TimeoutExpired:
        return {"calls": 0, "seen": {}, "wrong": [f"not through after {seconds:.0f} s"]}
    lines = ended.stdout.splitlines()
    counts = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|skipped|errors?)", (lines or [""])[-1])}
    wrong = [text[:400] for text in lines if text.startswith(("FAILED", "ERROR"))]
    wrong += [] if ended.returncode in (0, 1) and counts else [(ended.stdout + ended.stderr)[-800:]]
    return {"calls": sum(counts.values()), "seen": counts, "wrong": wrong}


def same(old: Record, new: Record) -> bool:
    """Whether parts of the one can stand beside parts of the other."""
    return all(getattr(old, name) == getattr(new, name) for name in ("torch", "phasor", "cpu", "quick", "kernel")) and (
        (old.device or {}).get("name") == (new.device or {}).get("name")
    )


def shown(name: str, what: dict[str, Any]) -> None:
    say(f"{name}: {what['calls']}: {', '.join(f'{n} {of}' for of, n in what['seen'].items())}")
    for wrong in what["wrong"]:
        say(f"  WRONG: {wrong}")


def gpu(
    minutes: Annotated[float, typer.Option(help="The limit of the whole.")] = 8.0,
    out: Annotated[Path | None, typer.Option("--json", metavar="OUT", help="The file for the results.")] = None,
    rounds: Annotated[int, typer.Option(help="How often each case is timed.")] = 30,
) -> None:
    """Bits and times of the Triton kernel on this machine's GPU; interpreted, on tiny sizes, where there is none."""
    begun = time.monotonic()

    def left() -> float:
        return 60 * minutes - (time.monotonic() - begun)

    interpreted()
    clock: Any = CudaClock() if ON_CARD else HostClock()
    if out is None and ON_CARD:
        name = re.sub(r"\W+", "_", clock.about()["name"].lower().removeprefix("nvidia ")).strip("_")
        out = ROOT / "benchmarks" / "results" / f"gpu_{name}.json"
    if out is not None:
        check_file_target("--json", out)
    options: dict[str, Any] = {"rounds": rounds, "quick": not ON_CARD, "clock": clock, "kernel": "triton"}
    record = replace(run([CASES[0].name], command="benchmarks/gpu.py", **options), bits={})
    if out is not None and out.is_file() and same(old := read(out), record):
        record = replace(old, skipped={name: why for name, why in old.skipped.items() if why != NO_TIME})
    parts: dict[str, Callable[[], dict[str, Any]]] = {
        "law": lambda: laws(left() / 3 if ON_CARD else 5.0, clock.device),
        "tests": lambda: {"tests/gpu": named_tests(left() / 2)},
    }
    for name, part in parts.items():
        before = [what for about, what in (record.bits or {}).items() if about.startswith(name)]
        if before and not any(what["wrong"] for what in before):
            continue
        found = part() if left() > LEAST else {}
        for about, what in found.items():
            shown(about, what)
        skipped = record.skipped if found else {**record.skipped, name: NO_TIME}
        record = replace(record, bits={**(record.bits or {}), **found}, skipped=skipped)
        keep(record, out)
    for case in CASES:
        if not any(row.case == case.name for row in record.rows):
            timed = (
                run([case.name], **options)
                if left() > LEAST
                else replace(record, rows=(), skipped={case.name: NO_TIME})
            )
            for row in timed.rows:
                say(line(row))
            record = replace(record, rows=record.rows + timed.rows, skipped={**record.skipped, **timed.skipped})
            keep(record, out)
    wrong = [text for what in (record.bits or {}).values() for text in what["wrong"]]
    late = [name for name, why in record.skipped.items() if why == NO_TIME]
    spent = 60 * minutes - left()
    say(f"{len(wrong)} wrong; not run: {', '.join(late) or 'nothing'}; {spent:.0f} s; {out or 'no file'}")
    sys.exit(bool(wrong))


def keep(record: Record, out: Path | None) -> None:
    if out is not None:
        write(record, out)


if __name__ == "__main__":
    typer.run(gpu)
