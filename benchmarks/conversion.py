"""The most memory that `phasor convert` has, with and without its proof, on a checkpoint of Llama's shape.

    python benchmarks/conversion.py FOLDER

Writes 0.5 GB of bfloat16 into FOLDER and converts it there, in a process of its own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from checkpoints import synthetic


def peak(source: Path, target: Path, *options: str) -> float:
    """Megabytes that the command had at most."""
    command = [sys.executable, "-m", "phasor", "convert", source, target, "--to", "interleaved", *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    shutil.rmtree(target)
    return usage.ru_maxrss / 1024


def main(folder: Path) -> None:
    source, target = folder / "source", folder / "target"
    synthetic.write(source, layers=4, hidden=2048, heads=32, kv_heads=8, wide=8192, per_shard=4)
    print(f"{peak(source, target, '--no-proof'):.0f} MB, with proof {peak(source, target):.0f} MB")
    shutil.rmtree(source)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
