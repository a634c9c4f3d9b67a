"""What a conversion costs beside a copy of the same files: time synced to the disk, and peak memory.

    python benchmarks/conversion.py FOLDER [--gigabytes 2.2] [--rounds 5]

Writes a sharded bfloat16 checkpoint of Llama's shape into FOLDER (a disk, not a tmpfs), reads it once, then measures in
turn, each in a process of its own: ``cp`` and ``sync``, the conversion, the conversion with its proof, the conversion
in place. Medians of the ratios within a round; memory is that of the whole process less a bare ``import`` of it.
"""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

CONVERT = """
import resource, sys, time
from phasor.checkpoints import convert, convert_in_place
bare = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
how, source, target = sys.argv[1:]
if how == "in place":
    convert_in_place(source, to="interleaved")
else:
    convert(source, target, to="interleaved", proof=how == "with proof")
print(time.perf_counter() - start, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - bare) / 1024)
"""


def copied(source: Path, target: Path) -> tuple[float, float]:
    start = time.perf_counter()
    subprocess.run(["cp", "-r", source, target], check=True)
    for path in target.iterdir():  # as `sync` of these files alone: others write to this disk, too
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)
    return time.perf_counter() - start, 0.0


def converted(how: str, source: Path, target: Path) -> tuple[float, float]:
    done = subprocess.run(
        [sys.executable, "-c", CONVERT, how, source, target], check=True, capture_output=True, text=True
    )
    seconds, megabytes = map(float, done.stdout.split())
    return seconds, megabytes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--gigabytes", type=float, default=2.2)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from checkpoints import synthetic

    source, target = asked.folder / "source", asked.folder / "target"
    layers = round(16 * asked.gigabytes / 1.946)
    synthetic.write(source, layers=layers, hidden=2048, heads=32, kv_heads=8, wide=8192)
    moved = layers * 2 * 2048 * (2048 + 512) / sum(p.stat().st_size for p in source.iterdir())
    ways = ("cp and sync", "converted", "with proof", "in place")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    memory: dict[str, float] = dict.fromkeys(ways, 0.0)
    for _ in range(asked.rounds):
        for path in source.iterdir():  # into the page cache
            path.read_bytes()
        for way in ways:
            if way == "in place":
                copied(source, target)
            took, peak = (
                copied(source, target)
                if way == ways[0]
                else converted(way, target if way == "in place" else source, target)
            )
            shutil.rmtree(target)
            seconds[way].append(took)
            memory[way] = max(memory[way], peak)
    print(
        f"{sum(p.stat().st_size for p in source.iterdir()) / 1e9:.2f} GB, {moved:.1%} of it q and k, {asked.rounds} rounds"
    )
    for way in ways:
        ratio = statistics.median(b / a for a, b in zip(seconds[ways[0]], seconds[way], strict=True))
        print(f"{way:12s} {statistics.median(seconds[way]):6.2f} s  {ratio:5.2f} x cp and sync  {memory[way]:6.0f} MB")
    shutil.rmtree(source)


if __name__ == "__main__":
    main()
