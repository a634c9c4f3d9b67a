"""Two processes rotate DTensors: `rotations.py` compares them with the whole, cell by cell."""

import os
import sys
from pathlib import Path

import pytest

import limited

SCRIPT = Path(__file__).with_name("rotations.py")
RUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(SCRIPT)]


def run(*arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = limited.run([*RUN, *arguments], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


def test_every_placement_has_the_bits_of_the_whole():
    assert "95 cells, failed: []" in run()


@pytest.mark.slow
def test_batches_of_positions_and_compiled_code_too():
    assert "179 cells, failed: []" in run("all")
