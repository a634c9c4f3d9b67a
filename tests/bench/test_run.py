"""A whole run, child processes, kinds of memory."""

import json
import os
import platform
import sys

import pytest
from timing import machine, run
from timing.run import _by_memory, _child, named

import limited


@pytest.fixture
def children(python, monkeypatch):
    """What measures is started by that python."""
    monkeypatch.setattr(sys, "executable", python)


@pytest.mark.usefixtures("children")
def test_a_named_kernel_runs():
    record = run(["token"], rounds=1, kernel="reference", quick=True)
    assert record.kernel == "reference" and len(record.rows) == 6


@pytest.mark.usefixtures("children")
def test_a_mistake_that_only_the_child_sees_is_the_same_error():
    plan = {"memory": "as found", "cases": ["token"], "rounds": 1, "threads": 1, "kernel": "warp", "quick": True}
    with pytest.raises(ValueError, match="kernel must be 'auto' or one of"):
        list(_child("as found", plan))


@pytest.mark.usefixtures("children")
def test_a_child_that_dies_is_an_error(capfd):
    plan = {"memory": "as found", "cases": ["token"]}  # without options: a mistake of ours, whose traceback is shown
    with pytest.raises(RuntimeError, match="the process that measures ended with 1; its messages are above"):
        list(_child("as found", plan))
    assert "KeyError: 'rounds'" in capfd.readouterr().err


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator takes these variables")
def test_large_cases_are_measured_in_fresh_and_in_reused_memory():
    prefill, token = named(["prefill", "token"])
    assert _by_memory((prefill, token), quick=False) == {"fresh": [prefill], "reused": [prefill], "as found": [token]}
    assert _by_memory((prefill, token), quick=True) == {"as found": [prefill, token]}


# 16 MiB, by Python's allocator and by torch's, which both ask glibc's for so much.
BLOCKS = {"bytes": "b'x' * 2**24", "torch": "torch.ones(4, 2**20)"}
FAULTS = """
import json, resource
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    y = {block}
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
for _ in range(30):
    faults()
print(json.dumps([faults() for _ in range(5)]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator takes these variables")
@pytest.mark.parametrize("memory", ["fresh", "reused"])
@pytest.mark.parametrize("block", ["bytes", pytest.param("torch", marks=pytest.mark.slow)])
def test_fresh_pages_are_faulted_in_by_every_call_and_reused_ones_are_not(block, memory):
    imports = f"import {block}" if block == "torch" else ""
    command = [sys.executable, "-c", imports + FAULTS.format(block=BLOCKS[block])]
    env = machine.environment(memory)
    done = limited.run(command, env=env, check=True)
    faults = json.loads(done.stdout)  # 4096 small pages, or 8 huge ones
    assert min(faults) >= 8 if memory == "fresh" else max(faults) < 8


def test_the_environment_of_a_child(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    env = machine.environment("reused")
    assert {k: v for k, v in env.items() if k.startswith("MALLOC_")} == machine.GLIBC["reused"]
    assert env["PYTHONPATH"].endswith(os.pathsep + "elsewhere") and "MALLOC_ARENA_MAX" not in machine.environment(
        "as found"
    )
