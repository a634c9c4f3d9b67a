"""Two processes: DTensors against the whole (`rotations.py`), patched models against one process (`patched.py`)."""

import pytest

from .torchrun import fork, run


def test_every_placement_has_the_bits_of_the_whole(python):
    assert "95 cells, failed: []" in fork(python, "rotations.py")


@pytest.mark.slow
def test_batches_of_positions_and_compiled_code_too():
    assert "179 cells, failed: []" in run("rotations.py", "all")


def test_a_patched_model_has_the_gradients_of_one_process(python):
    """FSDP2 and tensor parallel, patched before and after; ``tp_plan="auto"``, stages of a pipeline, cut sequences."""
    pytest.importorskip("transformers")
    assert "14 cells, failed: []" in fork(python, "patched.py")
