"""Two processes: DTensors against the whole (`rotations.py`), patched models against one process (`patched.py`)."""

import pytest

from .torchrun import run


def test_every_placement_has_the_bits_of_the_whole():
    assert "95 cells, failed: []" in run("rotations.py")


@pytest.mark.slow
def test_batches_of_positions_and_compiled_code_too():
    assert "179 cells, failed: []" in run("rotations.py", "all")


def test_a_patched_model_under_fsdp_and_tensor_parallel():
    pytest.importorskip("transformers")
    assert "8 cells, failed: []" in run("patched.py")
