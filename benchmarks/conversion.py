"""What `phasor convert` costs beside a copy of the same files: the whole command, synced to the disk, and peak memory.

    python benchmarks/conversion.py FOLDER [--gigabytes 1.5] [--layers-per-file 4] [--rounds 5]

Writes a bfloat16 checkpoint of Llama's shape into FOLDER (a disk, not a tmpfs), reads it once, then measures in
turn, each from the start of its process to its end: ``cp`` and ``sync``, the conversion without and with its proof, and
the plan alone, which is the start. Medians of the ratios within a round; memory is the most that the
process had.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

COPY, PLAN = "cp and sync", "the plan alone"
OPTIONS = {
    PLAN: ("--dry-run",),
    "converted": ("--no-proof",),
    "with proof": (),
}


def copied(source: Path, target: Path) -> tuple[float, float]:
    start = time.perf_counter()
    subprocess.run(["cp", "-r", source, target], check=True)
    for path in target.iterdir():  # as `sync` of these files alone: others write to this disk, too
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return time.perf_counter() - start, 0.0


def converted(way: str, source: Path, target: Path) -> tuple[float, float]:
    """Seconds of the command, and the megabytes of memory that it had at most."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # an installed package has it
    command = [sys.executable, "-m", "phasor", "convert", source, target, "--to", "interleaved", *OPTIONS[way]]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=1.5)
    parser.add_argument("--layers-per-file", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from checkpoints import synthetic

    source, target = options.folder / "source", options.folder / "target"
    layers = max(1, round(16 * options.gigabytes / 1.946))
    synthetic.write(
        source, layers=layers, hidden=2048, heads=32, kv_heads=8, wide=8192, per_shard=options.layers_per_file
    )
    size = sum(path.stat().st_size for path in source.iterdir())
    moved = layers * 2 * 2048 * (2048 + 512) / size
    ways = (COPY, *OPTIONS)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    memory: dict[str, float] = dict.fromkeys(ways, 0.0)
    for _ in range(options.rounds):
        # into the page cache; not read here, since Linux counts the most memory of a process to those that it starts
        subprocess.run(["cat", *source.iterdir()], stdout=subprocess.DEVNULL, check=True)
        for way in ways:
            os.sync()  # what is left to do of the folders removed before is not this way's
            took, peak = copied(source, target) if way == COPY else converted(way, source, target)
            if way != PLAN:
                shutil.rmtree(target)
            seconds[way].append(took)
            memory[way] = max(memory[way], peak)
    print(f"{size / 1e9:.2f} GB, {moved:.1%} of it q and k, {options.rounds} rounds")
    for way in ways:
        ratio = statistics.median(b / a for a, b in zip(seconds[COPY], seconds[way], strict=True))
        print(f"{way:20s} {statistics.median(seconds[way]):6.2f} s  {ratio:5.2f} x cp and sync  {memory[way]:6.0f} MB")
    shutil.rmtree(source)


if __name__ == "__main__":
    main()
