"""The lab's training on torch's engine: runs that are killed, and what is refused; gradients: `test_dtensors.py`."""

import json
import os
import random
import sys
import time
from functools import partial

import pytest
from safetensors.torch import load_file

import limited
from phasor_lab.lab import ModelConfig, RunConfig
from phasor_lab.lab.parallel import Parallel

from . import children
from .torchrun import environments

TINY = ["--text", __file__, "--layers", "1", "--dim", "16", "--heads", "2", "--length", "16", "--batch", "8"]


def config(**changes):
    model = {
        name: changes.pop(name) for name in ("length", "heads", "kv_heads", "encoding", "hidden") if name in changes
    }
    return RunConfig(model=ModelConfig(**{"dim": 24, "heads": 4, "length": 16, **model}), **changes)


@pytest.mark.parametrize(
    "parallel, size, changes, message",
    [
        ({"cp": 2, "tp": 2}, 2, {}, r"processes must be a multiple of cp x tp = 4, got 2; start .* --nproc-per-node 4"),
        ({"cp": 3}, 4, {}, "the number of processes must be a multiple of cp x tp = 3, got 4"),
        ({"cp": 2}, 2, {"length": 18}, "length must be a multiple of 4 for cp=2, got 18"),
        ({"cp": 0}, 2, {}, "cp must be an integer of at least 1, got 0"),
        ({"tp": 3}, 3, {}, "heads must be a multiple of tp=3, got 4"),
        ({"tp": 4}, 4, {"kv_heads": 2}, "kv_heads must be a multiple of tp=4, got 2"),
        ({"tp": 4}, 4, {"hidden": 66}, "hidden must be a multiple of tp=4, got 66"),
        ({"tp": 2}, 2, {"encoding": "t5"}, "encoding must be one of rotary, .* for tp=2: .* got 't5'"),
        ({"fsdp": True}, 1, {}, "fsdp needs two processes or more beside tp=1, got 1"),
        ({"fsdp": True, "tp": 2}, 2, {}, "fsdp needs two processes or more beside tp=2, got 2"),
        ({"tp": 2}, 4, {"batch": 3}, "batch must be a multiple of the 2 processes that share it, got 3"),
    ],
)
def test_what_does_not_fit_is_refused(parallel, size, changes, message):
    with pytest.raises(ValueError, match=message):
        Parallel(**parallel).check(config(**changes), size)


def test_lengths_that_do_not_divide_are_no_matter_to_others():
    Parallel(fsdp=True).check(config(length=17), 2)
    Parallel(tp=2).check(config(length=17), 4)


def commands(python, tmp_path, *words):
    """Two processes of ``phasor lab train``, each with its own words: the exit codes, and what they said."""
    pair = []
    for environment, own in zip(environments(2), words, strict=True):
        env = {**os.environ, **environment, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
        command = [
            python,
            "-m",
            "phasor",
            "lab",
            "train",
            *TINY,
            "--tokens",
            "256",
            "--out",
            str(tmp_path),
            *own,
        ]
        pair.append(limited.Process(command, env=env, stdout=limited.PIPE, stderr=limited.PIPE, text=True))
    said = [process.communicate(timeout=limited.LIMIT) for process in pair]
    return [process.returncode for process in pair], said


def test_ranks_that_disagree_end_alike(python, tmp_path):
    codes, said = commands(python, tmp_path, ["--cp", "2"], ["--cp", "2", "--length", "32"])
    line = (
        "phasor: length must be the same on all processes, got 16 on rank 0 and 32 on rank 1; give all the same command"
    )
    assert codes == [2, 2], said
    assert said == [("", line + "\n"), ("", "")]


def losses(folder):
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def start():
    with limited.children("torch", "torch._dynamo", "phasor_lab.lab", "phasor_lab.lab.parallel") as start:
        yield partial(start, children.run)


def together(start, folder, processes, **parallel):
    pair = [start_one(start, folder, environment, parallel) for environment in environments(processes)]
    for process in pair:
        process.join()
    assert [process.exitcode for process in pair] == [0] * processes


def start_one(start, folder, environment, parallel):
    return start(folder, environment, tuple(parallel.items()))


def killed(start, folder, chance, **parallel):
    """Two processes that end at a random moment after one of the next checkpoints; they may be done before."""
    pair = [start_one(start, folder, environment, parallel) for environment in environments(2)]
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
@pytest.mark.parametrize("parallel", [{"cp": 2, "fsdp": True}, {"tp": 2}, {"fsdp": True}], ids=str)
def test_killed_and_resumed(start, tmp_path, parallel):
    """On as many processes: the same bits. On one and on four: the same to the rounding of float32."""
    chance = random.Random(str(parallel))
    together(start, tmp_path / "whole", 2, **parallel)
    expected, bits = losses(tmp_path / "whole"), weights(tmp_path / "whole")
    for number in range(3):
        folder = tmp_path / f"same{number}"
        assert any([killed(start, folder, chance, **parallel) for _ in range(2)])
        together(start, folder, 2, **parallel)
        assert losses(folder) == expected
        ours = weights(folder)
        assert ours.keys() == bits.keys() and all(bool((ours[name] == bits[name]).all()) for name in bits)
        assert sorted(path.name for path in folder.iterdir()) == ["checkpoint.safetensors", "metrics.jsonl", "run.json"]
    on_four = {"tp": 2, "fsdp": True} if "tp" in parallel else {**parallel}
    for processes, others in ((1, {}), (4, on_four)):
        folder = tmp_path / f"on{processes}"
        killed(start, folder, chance, **parallel)
        together(start, folder, processes, **others)
        assert losses(folder) == pytest.approx(expected, rel=1e-4)
        for name, ours in weights(folder).items():
            assert (ours - bits[name]).norm() <= 1e-3 * bits[name].norm() + 1e-6, name
