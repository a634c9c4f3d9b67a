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
import sys, time
from phasor.checkpoints import convert, convert_in_place

def peak():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

open("/proc/self/clear_refs", "w").write("5")  # the peak of the imports is forgotten
bare = peak()
start = time.perf_counter()
how, source, target = sys.argv[1:]
if how.startswith("in place"):
    convert_in_place(source, to="interleaved", proof="proof" in how)
else:
    convert(source, target, to="interleaved", proof=how == "with proof")
print(time.perf_counter() - start, peak() - bare)
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
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from checkpoints import synthetic

    source, target = options.folder / "source", options.folder / "target"
    layers = round(16 * options.gigabytes / 1.946)
    synthetic.write(source, layers=layers, hidden=2048, heads=32, kv_heads=8, wide=8192)
    size = sum(path.stat().st_size for path in source.iterdir())
    moved = layers * 2 * 2048 * (2048 + 512) / size
    ways = ("cp and sync", "converted", "with proof", "in place", "in place with proof")
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    memory: dict[str, float] = dict.fromkeys(ways, 0.0)
    for _ in range(options.rounds):
        for path in source.iterdir():  # into the page cache
            path.read_bytes()
        for way in ways:
            if way.startswith("in place"):
                copied(source, target)
            took, peak = (
                copied(source, target)
                if way == ways[0]
                else converted(way, target if way.startswith("in place") else source, target)
            )
            shutil.rmtree(target)
            seconds[way].append(took)
            memory[way] = max(memory[way], peak)
    print(f"{size / 1e9:.2f} GB, {moved:.1%} of it q and k, {options.rounds} rounds")
    for way in ways:
        ratio = statistics.median(b / a for a, b in zip(seconds[ways[0]], seconds[way], strict=True))
        print(f"{way:20s} {statistics.median(seconds[way]):6.2f} s  {ratio:5.2f} x cp and sync  {memory[way]:6.0f} MB")
    shutil.rmtree(source)


if __name__ == "__main__":
    main()
