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
from timing.cases import Law  # noqa: E402
from timing.gpu import CASES as ON_GPU  # noqa: E402
from timing.measure import DTYPES, Case  # noqa: E402

START, END = "<!-- speed -->\n", "<!-- /speed -->"
HEAD = """# What a rotation costs

Measured by `make bench`; written by `python benchmarks/performance.py`, not edited by hand.

The law of calls: every way in, at every shape below, in every dtype and layout, on one thread, in memory that was used
before. A number is a time in units of the limit, the time of as many bytes read and written at the rate of a `copy_` of
q and k: in turns in one process, the median over rounds. Shown is the call farthest beyond its goal, with its way in
and its layout; a **bold** number misses its goal. All others stand in `benchmarks/results`.

The ways in: by `positions` (`rotate`) or by `tables` (`apply_rotary_qk`), each to new tensors, to some that exist
(`out`) or `in place`; by `rounded tables`, every product rounded as most model code does; `flat heads`; `packed` with
values (`apply_rotary_qkv`); into a `cache` of pages (`apply_rotary_to_cache`). The layouts: `halves`, `interleaved`,
and `permuted` (read interleaved, written as halves).

Where another library is measured in units of phasor, a larger number is better for phasor.

What stops the goals that are missed: half precision is bound by instructions wherever memory is not slow. With AVX2 a
loop has 45 for each 64 bytes of heads in bfloat16 (56 where pairs are permuted), and a copy 4. With AVX-512 there are
13 on whole vectors, two in a cycle: a head of 128 channels takes 26 cycles, its copy out of the second cache 15. Zen 4
has half their rate: 8 cycles for 64 bytes, a copy 5. There `avx512_bf16` rounds two vectors at once, and
rows whose small numbers it would make zero go the other way: 7 cycles, with every product rounded 11 instead of 18.
float16 has no such way. Of 35 microseconds at 64 tokens 2 to 5 are the call, its new tensors, cos and sin.

float32 is bound by the second cache: beside its copy a head of 128 channels reads 512 bytes of cos and sin, once for
four heads. On Zen 4 the bare loop then takes 1.06 to 1.17 copies. Ragged heads go one after the other.

## The cases

| case | what is timed |
|---|---|
"""
GPU = """
## On a GPU

`make gpu`, or for times alone `make bench ARGS="--device cuda"`, measures these by the device's own clock (CUDA
events), in units of a copy of the same bytes into tensors that exist, beside the libraries that are installed there.

| case | what is timed |
|---|---|
"""
NONE_YET = "Not measured yet with this version.\n"


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
    """The cases, then the runs, those on a GPU first."""
    ordered = sorted(runs, key=lambda run: run.device is None)
    numbers = "".join("\n" + _run(run, CASES if run.device is None else ON_GPU) for run in ordered)
    return HEAD + _table(CASES) + GPU + _table(ON_GPU) + (numbers or "\n" + NONE_YET)


def _table(cases: Sequence[Case]) -> str:
    return "".join(f"| `{case.name}` | {case.about} |\n" for case in cases)


def _run(run: Record, cases: Sequence[Case]) -> str:
    judged = [row.met for row in run.rows if row.met is not None]
    about = "" if run.device is None else f" A copy reads and writes {run.device['copy_tb_per_s']:.2f} TB/s."
    text = (
        f"## {run.cpu if run.device is None else run.device['name'] + ', beside ' + run.cpu}, {run.cores} cores\n\n"
        f"{run.date}: torch {run.torch}, Python {run.python}, {run.rounds} rounds, kernel `{run.kernel}`.{about} "
        f"{sum(judged)} of {len(judged)} goals met.\n\n"
    ) + _numbers(run, cases, named=True)
    for name, what in (run.bits or {}).items():
        counts = ", ".join(f"{n:,} {of}" for of, n in what["seen"].items())
        text += f"\n`{name}` there: {counts}.{' What failed: [gpu.md](gpu.md).' if what['wrong'] else ''}\n"
    measured = {row.case for row in run.rows}
    if skipped := [f"`{name}` ({why})" for name, why in run.skipped.items() if name not in measured]:
        text += f"\nSkipped: {'; '.join(skipped)}.\n"
    return text


def _numbers(run: Record, cases: Sequence[Case], named: bool) -> str:
    """A line for each case, and on a GPU for each library; of the law of calls the worst call, with its name or not."""
    text = "| case | float32 | bfloat16 | float16 |\n|---|---|---|---|\n"
    for case in cases:
        rows = [row for row in run.rows if row.case == case.name]
        law = isinstance(case, Law)
        for measured in dict.fromkeys("" if law else row.measured for row in rows):
            of = [row for row in rows if law or row.measured == measured]
            cells = [_worst([row for row in of if row.dtype == dtype], law and named) for dtype in DTYPES]
            name = f"`{case.name}`" + (f": {measured}" if measured not in ("", case.measured) else "")
            text += f"| {name} | {' | '.join(cells)} |\n"
    return text


def figures(runs: Sequence[Record]) -> str:
    """The README's table, of the first run on a CPU, without whole models."""
    on_cpu = [run for run in runs if run.device is None]
    if not on_cpu:
        return NONE_YET
    run = on_cpu[0]
    return (
        f"{run.cpu}, {run.cores} cores, torch {run.torch}, phasor {run.phasor}; for each case the worst call:\n\n"
        + _numbers(run, [case for case in CASES if not case.name.startswith("llama")], named=False)
    )


def _worst(rows: Sequence[Timing], named: bool) -> str:
    if not rows:
        return ""
    row = max(rows, key=lambda row: (row.beyond, row.ratio))
    number = f"**{row.ratio:.2f}**" if row.met is False else f"{row.ratio:.2f}"
    return f"{number} {row.measured}, {row.layout}" if named else number


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
