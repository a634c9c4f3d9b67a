"""A whole run, as the command line starts it: child processes, kinds of memory, refusals."""

import json
import os
import platform
import subprocess
import sys

import pytest

from phasor.bench import machine, read, run
from phasor.bench.cases import named
from phasor.bench.run import _by_memory, _child
from phasor.cli import main
from phasor.kernels import available


def phasor(*args, **env):
    command = [sys.executable, "-m", "phasor", "bench", *map(str, args)]
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", env={**os.environ, **env}, timeout=120
    )


def test_a_quick_run(tmp_path):
    path = tmp_path / "out.json"
    args = ("--quick", "--cases", "token, given,vllm", "--against-goals", "--json", path)
    done = phasor(*args, PHASOR_PEERS=str(tmp_path))
    assert done.returncode == 0 and not done.stderr
    head, *lines = done.stdout.splitlines()
    assert head.split() == ["case", "dtype", "layout", "memory", "measured", "unit", "ratio", "spread"]
    assert len(lines) == 2 * 3 * 2 + 1  # two cases, three dtypes, two layouts; and one that is not here
    assert lines[0].startswith("given") and lines[0].endswith("at most 0.9")  # no verdict on tiny sizes
    assert (
        "not run: no vllm_rotary.so in the folder that PHASOR_PEERS names"
        in lines[-1] + lines[0] + lines[6] + lines[12]
    )
    record = read(path)
    assert record.quick and (record.rounds, record.threads, record.kernel) == (2, 1, "auto")
    assert record.command.startswith("phasor bench --quick --cases 'token, given,vllm'")
    assert record.kernels == available() and record.cpu and record.torch and record.phasor
    assert [row.case for row in record.rows] == ["given"] * 6 + ["token"] * 6
    assert list(record.skipped) == ["vllm"] and {row.memory for row in record.rows} == {"as found"}


def test_a_named_kernel_runs():
    record = run(["token"], rounds=1, kernel="reference", quick=True)
    assert record.kernel == "reference" and len(record.rows) == 6


@pytest.mark.parametrize(
    "args, said",
    [
        (["--cases", "decode"], "phasor: --cases must be names out of prefill, given, in-place,"),
        (["--rounds", "0"], "phasor: --rounds must be an integer of at least 1, got 0"),
        (["--threads", "0"], "phasor: --threads must be an integer of at least 1, got 0"),
        (["--threads", "100000"], "phasor: --threads must be at most the number of cores,"),
        (["--kernel", "warp"], "phasor: kernel must be 'auto' or one of "),
        (["--device", "cuda"], "phasor: --device must be cpu, the only one that is measured so far, got 'cuda'"),
        (["--json", "/no/such/folder/a.json"], "phasor: --json must be a file in a folder that exists, got"),
        (["--json", "."], "phasor: --json must be a file in a folder that exists, got"),
    ],
)
def test_a_bad_option_is_one_line(args, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["phasor", "bench", "--quick", *args])
    with pytest.raises(SystemExit) as stopped:
        main()
    out, err = capsys.readouterr()
    assert stopped.value.code == 2 and not out
    assert err.startswith(said) and err.count("\n") == 1


def test_a_mistake_that_only_the_child_sees_is_the_same_error():
    plan = {"memory": "as found", "cases": ["token"], "rounds": 1, "threads": 1, "kernel": "warp", "quick": True}
    with pytest.raises(ValueError, match="kernel must be 'auto' or one of"):
        list(_child("as found", plan))


def test_a_child_that_dies_is_an_error(capfd):
    plan = {"memory": "as found", "cases": ["token"]}  # without options: a mistake of ours, whose traceback is shown
    with pytest.raises(RuntimeError, match="the process that measures ended with 1; what it said stands above"):
        list(_child("as found", plan))
    assert "KeyError: 'rounds'" in capfd.readouterr().err


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator takes these variables")
def test_large_cases_are_measured_in_fresh_and_in_reused_memory():
    prefill, token = named(["prefill", "token"])
    assert _by_memory((prefill, token), quick=False) == {"fresh": [prefill], "reused": [prefill], "as found": [token]}
    assert _by_memory((prefill, token), quick=True) == {"as found": [prefill, token]}


FAULTS = """
import json, resource, torch
x = torch.randn(4, 2**20)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    y = x.clone()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
for _ in range(30):
    faults()
print(json.dumps([faults() for _ in range(5)]))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator takes these variables")
@pytest.mark.parametrize("memory", ["fresh", "reused"])
def test_fresh_pages_are_faulted_in_by_every_call_and_reused_ones_are_not(memory):
    command = [sys.executable, "-c", FAULTS]
    env = machine.environment(memory)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=120)
    faults = json.loads(done.stdout)  # 16 MiB: 4096 small pages, or 8 huge ones
    assert min(faults) >= 8 if memory == "fresh" else max(faults) < 8


def test_the_environment_of_a_child(monkeypatch):
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    monkeypatch.setenv("PYTHONPATH", "elsewhere")
    env = machine.environment("reused")
    assert {k: v for k, v in env.items() if k.startswith("MALLOC_")} == machine.GLIBC["reused"]
    assert env["PYTHONPATH"].endswith(os.pathsep + "elsewhere") and "MALLOC_ARENA_MAX" not in machine.environment(
        "as found"
    )
