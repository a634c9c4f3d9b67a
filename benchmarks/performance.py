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
from timing.result import duration  # noqa: E402

START, END = "<!-- speed -->\n", "<!-- /speed -->"
HEAD = """# What a rotation costs

Measured by `python benchmarks/bench.py`; written by `python benchmarks/performance.py`, not edited by hand.

Each row compares a time with that of its **unit**, for example a copy of the same bytes. Both are measured in one
process, in a new random order every round. The **ratio** is the median, over rounds, of time divided by unit. The
**spread** gives the quartiles of these ratios. With one thread the clock is the CPU time of that thread, with
several it is the time on the wall. A goal of at most a number is about phasor's time. A goal of at least a number is
about the time of another library, in units of phasor's.

**memory** says where large new tensors lie:

- *fresh*: each is newly mapped, so the system clears its pages while it is first written. So it is in a process that
  gives memory back.
- *reused*: the memory was used and freed before.
- *as found*: the allocator's own choice, where sizes are small.

There is a section for each machine. The Xeon at 2.80 GHz did other work all the while (`cpu_xeon_shared.json`), so
whatever waits for memory waited longer there.

It was measured what stops the goals that are not met (`docs/log.md`, 2026-11-22). On a CPU that has AVX2 but no
AVX-512, half precision is bound by instructions wherever memory is not slow. For each 64 bytes of heads in bfloat16
the loop has

| pairs | instructions |
|---|---|
| halves | 45: 2 loads of heads, 4 of cos and sin, 4 to widen, 12 products and sums, 18 to round, 2 stores, 3 to go on |
| permuted | 56 |
| eight pairs, which do not fill two vectors | 64 |
| none, a copy | 4 |

With AVX-512 there are 13 operations on whole vectors for 64 bytes, beside loads and stores: 2 to widen, 6 products
and sums, 5 to round. An EPYC with AVX-512 does two of them in a cycle. So a head of 128 channels takes 26 cycles,
twice as long as its copy. That is why half precision of few tokens, whose copy is in the cache, does not come near
1.5 there (`docs/log.md`, 2026-11-25).

## The cases and their goals

| case | what is timed | float32 | bfloat16 | float16 |
|---|---|---|---|---|
"""
GPU = """
## On a GPU

{}

`make bench ARGS="--device cuda"` measures the cases below by the device's own clock (CUDA events). Their unit is a copy
of the same bytes into tensors that exist. The libraries that are installed there are timed too. The table above is
about CPUs.

| case | what is timed | float32 | bfloat16 | float16 |
|---|---|---|---|---|
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
    return "".join(f"| `{case.name}` | {case.about} | {' | '.join(_goals(case))} |\n" for case in cases)


def _goals(case: Case) -> list[str]:
    if case.goal_text:
        return [case.goal_text if dtype in case.dtypes else "" for dtype in DTYPES]
    return [str(case.goals.get(dtype, "")) if dtype in case.dtypes else "" for dtype in DTYPES]


def _run(run: Record, cases: Sequence[Case]) -> str:
    judged = [row.met for row in run.rows if row.met is not None]
    about = "" if run.device is None else f" A copy reads and writes {run.device['copy_tb_per_s']:.2f} TB/s."
    text = (
        f"## {run.cpu if run.device is None else run.device['name'] + ', beside ' + run.cpu}, {run.cores} cores\n\n"
        f"`{run.command}`, {run.date}: phasor {run.phasor}, torch {run.torch}, Python {run.python}, {run.rounds} "
        f"rounds. Kernel `{run.kernel}`, out of: "
        + "; ".join(f"`{name}`: {about}" for name, about in run.kernels.items())
        + f".{about}\n\n{sum(judged)} of {len(judged)} goals met.\n"
    )
    for case in cases:
        rows = [row for row in run.rows if row.case == case.name]
        if rows:
            threads = f" ({rows[0].threads} threads)" if rows[0].threads > 1 else ""
            text += (
                f"\n### {case.name}{threads}\n\n"
                "| dtype | layout | memory | measured | unit | ratio | spread | goal | met |\n"
                "|---|---|---|---|---|---|---|---|---|\n"
            ) + "".join(map(_row, rows))
    missing = [case.name for case in cases if case.name not in {row.case for row in run.rows}]
    if missing:
        text += "\nNot measured: " + "; ".join(
            f"`{name}`" + (f" ({run.skipped[name]})" if name in run.skipped else "") for name in missing
        )
        text += ".\n"
    return text


def _row(row: Timing) -> str:
    spread = f"{row.spread[0]:.2f} to {row.spread[1]:.2f} ({row.spread_of})" if row.spread else ""
    measured, unit = f"{row.measured} {duration(row.us)}", f"{row.unit} {duration(row.unit_us)}"
    verdict = {None: "", True: "yes", False: "**no**"}[row.met]
    cells = (row.dtype, row.layout, row.memory, measured, unit, f"{row.ratio:.2f}", spread, row.goal or "", verdict)
    return f"| {' | '.join(map(str, cells))} |\n"


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
    return f"{min(ratios) if low_is_bad else max(ratios):.2f}"


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
