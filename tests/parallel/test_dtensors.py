"""Two processes: DTensors against the whole (`rotations.py`), patched models against one process (`patched.py`)."""

import os
import sys
from pathlib import Path

import pytest

import limited

RUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]


def run(script: str, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    done = limited.run([*RUN, str(Path(__file__).with_name(script)), *arguments], env=environment)
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    return done.stdout


def test_every_placement_has_the_bits_of_the_whole():
    assert "95 cells, failed: []" in run("rotations.py")


@pytest.mark.slow
def test_batches_of_positions_and_compiled_code_too():
    assert "179 cells, failed: []" in run("rotations.py", "all")


def test_a_patched_model_under_fsdp_and_tensor_parallel():
    pytest.importorskip("transformers")
    assert "8 cells, failed: []" in run("patched.py")
