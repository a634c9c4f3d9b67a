"""The lab's training in several processes: runs that are killed, and what is refused; gradients: `test_dtensors.py`."""

import json
import os
import random
import sys
import time
from functools import partial

import pytest
from safetensors.torch import load_file

import limited

from . import children
from .torchrun import environments

TINY = ["--text", __file__, "--layers", "1", "--dim", "16", "--heads", "2", "--length", "16", "--batch", "8"]


def commands(python, tmp_path, *words):
    """Two processes of ``phasor lab train``, each with its own words: the exit codes, and what they said."""
    pair = []
    for environment, own in zip(environments(2), words, strict=True):
        env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        command = [python, "-m", "phasor", "lab", "train", *TINY, "--tokens", "256", "--out", str(tmp_path), *own]
        pair.append(limited.Process(command, env=env, stdout=limited.PIPE, stderr=limited.PIPE, text=True))
    said = [process.communicate(timeout=limited.LIMIT) for process in pair]
    return [process.returncode for process in pair], said


def test_ranks_that_disagree_end_alike(python, tmp_path):
    codes, said = commands(python, tmp_path, [], ["--length", "32"])
    line = (
        "phasor: length must be the same on all processes, got 16 on rank 0 and 32 on rank 1; give all the same command"
    )
    assert codes == [2, 2], said
    assert said == [("", line + "\n")] * 2


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def start():
    with limited.children("torch", "torch._dynamo", "phasor_lab.lab", "phasor_lab.lab.sharded") as start:
        yield partial(start, children.run)


def together(start, folder, processes, fsdp):
    pair = [start(folder, environment, fsdp) for environment in environments(processes)]
    for process in pair:
        process.join()
    assert [process.exitcode for process in pair] == [0] * processes


def killed(start, folder, chance):
    """Two processes that end at a random moment after one of the next checkpoints; they may be done before."""
    pair = [start(folder, environment, True) for environment in environments(2)]
    there, wanted, seen = saved(folder), chance.randrange(1, 3), set()
    while pair[0].exitcode is None and len(seen) < wanted:
        time.sleep(0.002)
        seen |= saved(folder) - there
    time.sleep(chance.uniform(0, 0.1))
    for process in pair:
        process.kill()
    for process in pair:
        process.join()
    return any(process.exitcode == -9 for process in pair)


def saved(folder):
    """The checkpoint that is whole now, by when it was written."""
    try:
        return {(folder / "checkpoint.safetensors").stat().st_mtime_ns}
    except FileNotFoundError:
        return set()


def weights(folder):
    return load_file(folder / "checkpoint.safetensors")


@pytest.mark.slow
def test_killed_and_resumed(start, tmp_path):
    """On as many processes: the same bits. On one and on four: the same to the rounding of float32."""
    chance = random.Random(0)
    together(start, tmp_path / "whole", 2, True)
    expected, bits = losses(tmp_path / "whole"), weights(tmp_path / "whole")
    for number in range(3):
        folder = tmp_path / f"same{number}"
        assert any([killed(start, folder, chance) for _ in range(2)])
        together(start, folder, 2, True)
        assert losses(folder) == expected
        ours = weights(folder)
        assert ours.keys() == bits.keys() and all(bool((ours[name] == bits[name]).all()) for name in bits)
        assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.safetensors", "metrics.jsonl"]
    for processes, fsdp in ((1, False), (4, True)):
        folder = tmp_path / f"on{processes}"
        killed(start, folder, chance)
        together(start, folder, processes, fsdp)
        assert losses(folder) == pytest.approx(expected, rel=1e-4)
        for name, ours in weights(folder).items():
            assert (ours - bits[name]).norm() <= 1e-3 * bits[name].norm() + 1e-6, name
