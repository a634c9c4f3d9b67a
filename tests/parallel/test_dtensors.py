"""Two processes: DTensors against the whole (`rotations.py`), patched models and the lab's training against one process
(`patched.py`, `training.py`)."""

import pytest

import limited

from . import children
from .torchrun import environments, run

# Imported once, and not by each process: this takes longer than what they do.
SHARED = (
    "torch._dynamo", "torch.distributed.fsdp", "torch.distributed.pipelining", "torch.distributed.tensor.parallel",
    "phasor_lab.lab.sharded", "transformers.models.llama.modeling_llama",
)  # fmt: skip


@pytest.fixture(scope="module")
def two():
    """What two processes print, as torchrun would start them."""
    with limited.children(*SHARED) as start:

        def printed(script):
            pair = [start(children.script, script, environment) for environment in environments(2)]
            for process in pair:
                process.join()
            assert [process.exitcode for process in pair] == [0, 0], [process.said for process in pair]
            return "".join(process.said for process in pair)

        yield printed


def test_every_placement_has_the_bits_of_the_whole(two):
    assert "35 cells, failed: []" in two("rotations")


@pytest.mark.slow
def test_batches_of_positions_and_compiled_code_too():
    assert "179 cells, failed: []" in run("rotations.py", "all")


def test_a_patched_model_has_the_gradients_of_one_process(two):
    """FSDP2 and tensor parallel, patched before and after; ``tp_plan="auto"``, stages of a pipeline, cut sequences."""
    pytest.importorskip("transformers")
    assert "7 cells, failed: []" in two("patched")


@pytest.mark.slow
def test_a_patched_model_in_float32_too():
    pytest.importorskip("transformers")
    assert "14 cells, failed: []" in run("patched.py", "all")


def test_two_processes_have_the_loss_and_the_gradients_of_one(two):
    """Within 1e-12 and 1e-5 of their norms in float64 and float32; and no bytes of positions are sent."""
    assert "16 cells, failed: []" in two("training")


@pytest.mark.slow
def test_four_processes_have_the_loss_and_the_gradients_of_one():
    assert "16 cells, failed: []" in run("training.py", processes=4)
