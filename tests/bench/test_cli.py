"""benchmarks/bench.py as a person meets it: what it prints, what it writes, how it refuses."""

import os

import pytest
from timing import read

import limited
from blocks import ROOT
from phasor.rotary.kernels import available

pytest.importorskip("typer")


def bench(python, *args, **env):
    command = [python, ROOT / "benchmarks/bench.py", *map(str, args)]
    return limited.run(command, encoding="utf-8", env={**os.environ, **env})


def test_a_quick_run(tmp_path, python):
    path = tmp_path / "out.json"
    args = ("--quick", "--cases", "token, given,vllm", "--against-goals", "--json", path)
    done = bench(python, *args, PHASOR_PEERS=str(tmp_path))
    assert done.returncode == 0 and not done.stderr
    first, head, *lines, last = done.stdout.splitlines()
    assert first == last and "these times and ratios say nothing about speed" in first
    assert head.split() == ["case", "dtype", "layout", "memory", "measured", "unit", "ratio", "spread"]
    assert len(lines) == 2 * 3 * 2 + 1  # two cases, three dtypes, two layouts; and one that is not here
    assert lines[0].startswith("given") and lines[0].endswith("at most 0.9")  # no verdict on tiny sizes
    assert (
        "not run: no vllm_rotary.so in the folder that PHASOR_PEERS names"
        in lines[-1] + lines[0] + lines[6] + lines[12]
    )
    record = read(path)
    assert record.quick and (record.rounds, record.threads, record.kernel) == (2, 1, "auto")
    assert record.command.startswith("benchmarks/bench.py --quick --cases 'token, given,vllm'")
    assert record.kernels == available() and record.cpu and record.torch and record.phasor
    assert [row.case for row in record.rows] == ["given"] * 6 + ["token"] * 6
    assert list(record.skipped) == ["vllm"] and {row.memory for row in record.rows} == {"as found"}


def test_a_peer_that_cannot_be_loaded_is_said_and_the_rest_runs(tmp_path, python):
    (tmp_path / "vllm_rotary.so").write_bytes(b"of another torch")
    done = bench(python, "--quick", "--cases", "vllm,token", PHASOR_PEERS=str(tmp_path))
    assert done.returncode == 0 and not done.stderr and done.stdout.count("token ") == 6
    assert f"not run: {tmp_path / 'vllm_rotary.so'} cannot be loaded" in done.stdout


@pytest.mark.parametrize(
    "args, said",
    [
        (["--cases", "decode"], "bench: --cases must be names out of prefill, given, in-place,"),
        (["--rounds", "0"], "bench: --rounds must be an integer of at least 1, got 0"),
        (["--threads", "0"], "bench: --threads must be an integer of at least 1, got 0"),
        (["--threads", "100000"], "bench: --threads must be at most the number of cores,"),
        (["--kernel", "warp"], "bench: kernel must be 'auto' or one of "),
        (["--device", "tpu"], "bench: --device must be cpu, cuda or cuda:0, cuda:1 and so on, got 'tpu'"),
        (["--device", "cuda", "--threads", "2"], "bench: --threads is for --device cpu, got 2 with --device cuda"),
        (["--plot", "a.png"], "bench: --plot draws a run on a GPU; add --device cuda"),
        (["--plot", "/no/such/folder/a.png"], "bench: --plot must be a file in a folder that exists, got"),
        (["--json", "/no/such/folder/a.json"], "bench: --json must be a file in a folder that exists, got"),
        (["--json", "."], "bench: --json must be a file that can be written, and '.' is a folder"),
    ],
)
def test_a_bad_option_is_one_line(args, said, forking_python):
    done = bench(forking_python, "--quick", *args)
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith(said) and done.stderr.count("\n") == 1
