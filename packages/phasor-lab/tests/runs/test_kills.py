"""Trainings killed at any moment, again and again: they end with the bytes of one that nothing disturbed."""

import json
import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from safetensors import safe_open

import limited

from . import children


@pytest.fixture(scope="module")
def start() -> Iterator[Callable[[Path], limited.Child]]:
    """Start a training in a process that has torch already."""
    modules = ["torch", "torch._dynamo", "phasor_lab.lab"]
    with limited.children(*modules) as start:
        yield partial(start, children.run)


def contents(folder: Path) -> dict[str, object]:
    """All files of a run; of those that hold times, what does not depend on them."""
    found: dict[str, object] = {}
    for path in sorted(folder.iterdir()):
        if path.suffix == ".jsonl":
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            found[path.name] = [{k: v for k, v in line.items() if k != "tokens_per_second"} for line in lines]
        elif path.name == "checkpoint.safetensors":
            with safe_open(path, "pt") as file:
                found[path.name] = {name: file.get_tensor(name).numpy().tobytes() for name in file.keys()}  # noqa: SIM118
        else:
            found[path.name] = path.read_bytes()
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory, start):
    """The seconds and the contents of a training that nothing disturbed."""
    folder = tmp_path_factory.mktemp("lab")
    start(folder / "first").join()  # also waits for the server of processes
    began = time.perf_counter()
    start(folder / "whole").join()
    seconds = time.perf_counter() - began
    assert contents(folder / "first") == contents(folder / "whole") != {}
    return seconds, contents(folder / "whole")


@pytest.mark.parametrize("kills", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_training_ends_with_the_same_bytes(tmp_path, start, whole, kills):
    """Some of them with a second process on their folder, which is told so, or goes on where the first was killed."""
    chance, done, number = random.Random(kills), 0, 0
    seconds, wanted = whole
    while True:
        folder = tmp_path / f"killed{number}"
        processes = [start(folder) for _ in range(1 + (chance.random() < 0.4))]
        time.sleep(chance.uniform(0, seconds) if done < kills else 0)
        for process in processes:
            if done < kills and process.exitcode is None:
                process.kill()
                done += 1
            process.join()
            assert process.exitcode in (0, 2, -9), process.exitcode
            if process.exitcode == 2:
                assert "must be used by one process at a time" in folder.with_suffix(".error").read_text()
        if any(process.exitcode == 0 for process in processes):
            assert contents(folder) == wanted
            if done == kills:
                return
            number += 1  # it was done before it could be killed: another


def test_of_two_processes_on_one_folder_one_is_told_so(tmp_path, start, whole):
    pair = [start(tmp_path / "both") for _ in range(2)]
    for process in pair:
        process.join()
    codes = sorted(process.exitcode for process in pair)
    assert codes in ([0, 2], [0, 0])  # or the second came when the first was done
    if codes == [0, 2]:
        assert "both must be used by one process at a time, and process" in (tmp_path / "both.error").read_text()
    assert contents(tmp_path / "both") == whole[1]
