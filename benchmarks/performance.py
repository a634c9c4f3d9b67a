"""Write docs/performance.md, and the figures in README.md, from what `benchmarks/bench.py --json` measured.

    python benchmarks/bench.py --json …            measures into a file of benchmarks/results; --device cuda on a GPU
    python benchmarks/performance.py               writes the page and the README's figures
    python benchmarks/performance.py --check       says whether they are what the results give, and writes nothing

Every benchmarks/results/*.json is one run on one machine; the README shows the first by name.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results"
PAGE = ROOT / "docs" / "performance.md"
README = ROOT / "README.md"
sys.path.insert(0, str(ROOT / "src"))

from timing import CASES, Record, Timing, read  # noqa: E402
from timing.gpu import CASES as ON_GPU  # noqa: E402
from timing.measure import DTYPES, Case  # noqa: E402

START, END = "<!-- speed -->\n", "<!-- /speed -->"
HEAD = """# What a rotation costs

Measured by `make bench`; written by `python benchmarks/performance.py`, not edited by hand.

Each number is a time in units of another, for example a copy of the same bytes: both measured in one process, in a new
random order every round, the median over rounds of time divided by unit, and of these the **worst** over layouts and
memory (fresh, so that the system clears its pages while they are first written, or used before). With one thread the
clock is the CPU time of that thread, with several it is the time on the wall. Where another library is measured in
units of phasor, a larger number is better for phasor, and the worst is the smallest. A **bold** number misses its goal.
Every row with its quartiles, and each goal, stands in `benchmarks/results`.

What stops the goals that are missed: half precision is bound by instructions wherever memory is not slow. With AVX2 a
loop has 45 for each 64 bytes of heads in bfloat16 (56 where pairs are permuted), and a copy 4. With AVX-512 there are
13 on whole vectors, two in a cycle: a head of 128 channels takes 26 cycles, twice as long as its copy.

## The cases

| case | what is timed |
|---|---|
"""
GPU = """
## On a GPU

{}

`make gpu`, or for times alone `make bench ARGS="--device cuda"`, measures these by the device's own clock (CUDA
events), in units of a copy of the same bytes into tensors that exist, beside the libraries that are installed there.

| case | what is timed |
|---|---|
"""
NONE_YET = "Not measured yet with this version.\n"
NO_GPU_YET = "**Nothing on this page was measured on a GPU.** What phasor costs there is not known."


def records() -> list[Record]:
    """The committed runs, by name; ``ValueError`` for one that the page cannot show."""
    runs = []
    for path in sorted(RESULTS.glob("*.json")):
        record = read(path)
        if record.quick:
            raise ValueError(f"{path.name} was measured with --quick, at sizes that mean nothing; measure it without")
        known = {case.name for case in (CASES if record.device is None else ON_GPU)}
        if unknown := {row.case for row in record.rows} - known:
            raise ValueError(
                f"{path.name} has rows of {', '.join(sorted(unknown))}, no case any more; measure it again"
            )
        runs.append(record)
    return runs


def page(runs: Sequence[Record]) -> str:
    text = HEAD + _table(CASES)
    on_cpu, on_gpu = ([run for run in runs if (run.device is None) == cpu] for cpu in (True, False))
    names = ", ".join(str(run.device["name"]) for run in on_gpu if run.device)
    text += GPU.format(f"Measured on: {names}." if on_gpu else NO_GPU_YET) + _table(ON_GPU)
    text += "".join("\n" + _run(run, ON_GPU) for run in on_gpu)
    if not on_cpu:
        return text + "\n" + NONE_YET
    return text + "".join("\n" + _run(run, CASES) for run in on_cpu)


def _table(cases: Sequence[Case]) -> str:
    return "".join(f"| `{case.name}` | {case.about} |\n" for case in cases)


def _run(run: Record, cases: Sequence[Case]) -> str:
    judged = [row.met for row in run.rows if row.met is not None]
    about = "" if run.device is None else f" A copy reads and writes {run.device['copy_tb_per_s']:.2f} TB/s."
    text = (
        f"## {run.cpu if run.device is None else run.device['name'] + ', beside ' + run.cpu}, {run.cores} cores\n\n"
        f"{run.date}: torch {run.torch}, Python {run.python}, {run.rounds} rounds, kernel `{run.kernel}`.{about} "
        f"{sum(judged)} of {len(judged)} goals met.\n\n"
        "| case | float32 | bfloat16 | float16 |\n|---|---|---|---|\n"
    )
    for case in cases:
        rows = [row for row in run.rows if row.case == case.name]
        for measured in dict.fromkeys(row.measured for row in rows):
            cells = [_worst([row for row in rows if (row.measured, row.dtype) == (measured, d)]) for d in DTYPES]
            name = f"`{case.name}`" + (f": {measured}" if measured != case.measured else "")
            text += f"| {name} | {' | '.join(cells)} |\n"
    for name, what in (run.bits or {}).items():
        counts = ", ".join(f"{n:,} {of}" for of, n in what["seen"].items())
        text += f"\n`{name}` there: {counts}.{' What failed: [gpu.md](gpu.md).' if what['wrong'] else ''}\n"
    measured = {row.case for row in run.rows}
    if skipped := [f"`{name}` ({why})" for name, why in run.skipped.items() if name not in measured]:
        text += f"\nSkipped: {'; '.join(skipped)}.\n"
    return text


def figures(runs: Sequence[Record]) -> str:
    """The README's table: of each case the worst ratio over layouts and memory."""
    on_cpu = [run for run in runs if run.device is None]
    if not on_cpu:
        return NONE_YET
    run = on_cpu[0]
    text = (
        f"{run.cpu}, {run.cores} cores, torch {run.torch}, phasor {run.phasor}; for each case the worst ratio "
        "among its layouts and kinds of memory:\n\n"
        "| time | in units of | float32 | bfloat16 | float16 |\n|---|---|---|---|---|\n"
    )
    for case in CASES:
        rows = [row for row in run.rows if (row.case, row.measured) == (case.name, case.measured)]
        if rows:
            cells = [_worst([row for row in rows if row.dtype == dtype]) for dtype in DTYPES]
            text += f"| `{case.name}`: {case.measured} | {case.unit} | {' | '.join(cells)} |\n"
    return text


def _worst(rows: Sequence[Timing]) -> str:
    if not rows:
        return ""
    ratios = [row.ratio for row in rows]
    low_is_bad = rows[0].goal is not None and rows[0].goal.rule == "at least"
    worst = f"{min(ratios) if low_is_bad else max(ratios):.2f}"
    return f"**{worst}**" if any(row.met is False for row in rows) else worst


def filled(readme: str, runs: Sequence[Record]) -> str:
    """The README with its figures between the two marks."""
    before, mark, rest = readme.partition(START)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError(f"README.md must hold the lines {START.strip()} and {END}, between which the figures go")
    return before + mark + figures(runs) + end + after


def main() -> None:
    runs = records()
    readme = README.read_text(encoding="utf-8")
    texts = {PAGE: page(runs), README: filled(readme, runs)}
    for path, text in texts.items():
        same = path.is_file() and path.read_text(encoding="utf-8") == text
        if "--check" in sys.argv and not same:
            sys.exit(f"{path.relative_to(ROOT)} is stale; run: python benchmarks/performance.py")
        if not same:
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")


if __name__ == "__main__":
    try:
        main()
    except ValueError as error:
        sys.exit(str(error))
