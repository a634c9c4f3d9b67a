"""The harness measures what it says, by a clock that only the calls move; and a whole run of it."""

import json
import platform
import time

import pytest
from timing import medians, race, read, run
from timing.measure import compared
from timing.run import MAPPED, measure, named, ratios

import limited
from blocks import ROOT


class Clock:
    """Moved by the calls that it makes."""

    def __init__(self):
        self.now, self.log = 0.0, []

    def __call__(self):
        return self.now

    def call(self, name, seconds, result=lambda: None):
        def run():
            self.now += seconds
            self.log.append(name)
            return result()

        return run


def test_seconds_of_one_call_in_every_round():
    clock = Clock()
    times = race({"a": clock.call("a", 2.0), "b": clock.call("b", 5.0)}, rounds=4, repeat=3, warm_up=2, clock=clock)
    assert times == {"a": [2.0] * 4, "b": [5.0] * 4} and medians(times) == {"a": 2.0, "b": 5.0}
    assert clock.log.count("a") == clock.log.count("b") == (2 + 4) * 3  # two rounds of warm-up, which are not counted


def test_every_round_runs_all_calls_in_an_order_of_its_own():
    clock = Clock()
    race({name: clock.call(name, 1.0) for name in "abcd"}, rounds=20, warm_up=0, clock=clock)
    rounds = ["".join(clock.log[i : i + 4]) for i in range(0, 80, 4)]
    assert all(sorted(order) == list("abcd") for order in rounds) and len(set(rounds)) > 5


def test_freeing_a_result_is_not_part_of_a_call_that_is_timed_alone():
    clock = Clock()

    class Result:
        def __del__(self):
            clock.now += 100.0

    assert race({"a": clock.call("a", 1.0, Result)}, rounds=3, clock=clock) == {"a": [1.0] * 3}


def test_the_ratio_is_the_median_of_the_ratios_of_rounds_and_not_the_ratio_of_medians():
    times = {"ours": [1.0, 2.0, 30.0], "unit": [1.0, 4.0, 10.0]}
    found = compared(times, "ours", "unit", None)
    assert found.ratio == 1.0 and found.spread == (0.75, 2.0)  # of 1, 0.5 and 3
    assert (found.us, found.unit_us) == (2e6, 4e6)


@pytest.mark.parametrize("threads, clock", [(1, "thread_time"), (2, "perf_counter")])
def test_cpu_time_on_one_thread_and_wall_time_on_several(monkeypatch, threads, clock):
    import torch

    ticks = iter(range(10_000))
    for name in ("thread_time", "perf_counter"):
        tick = (lambda: float(next(ticks))) if name == clock else (lambda: 0.0)
        monkeypatch.setattr(time, name, tick)
    before = torch.get_num_threads()
    (row,), _ = measure(named(["training"])[0], "float32", "halves", threads=threads, rounds=1, quick=True)
    torch.set_num_threads(before)
    assert (row.us, row.ratio, row.threads) == (1e6, 1.0, threads)


# 16 MiB, by Python's allocator, which asks glibc's for so much; each way in a process that is told of it once.
FAULTS = """
import json, os, resource, sys
sys.path.append("benchmarks")
from timing.run import MAPPED, keep
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    y = b'x' * 2**24
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
for memory in MAPPED:
    if not os.fork():
        keep(memory)
        for _ in range(30):
            faults()
        print(json.dumps([memory, *(faults() for _ in range(5))]), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc's allocator can be told")
def test_fresh_pages_are_faulted_in_by_every_call_and_reused_ones_are_not(forking_python, tmp_path):
    (tmp_path / "faults.py").write_text(FAULTS)
    done = limited.run([forking_python, tmp_path / "faults.py"], cwd=ROOT, check=True)
    faults = {memory: counts for memory, *counts in map(json.loads, done.stdout.splitlines())}
    assert faults.keys() == set(MAPPED) and len(faults["fresh"]) == 5
    assert min(faults["fresh"]) >= 8 and max(faults["reused"]) < 8  # 4096 small pages, or 8 huge ones


def test_the_limit_is_the_time_of_as_many_bytes_at_the_rate_of_the_copy():
    (case,) = named(["64 tokens"])
    times = {"tables": [3.0, 3.0], "packed": [3.0, 3.0], "copy_": [2.0, 2.0]}
    tables, packed = ratios(case, "bfloat16", "halves", times)
    assert (tables.ratio, tables.unit_us) == (1.5, 2e6)
    assert (packed.ratio, packed.unit_us) == (1.25, 2.4e6)  # 48 heads for 40


def test_a_quick_run(forking_python, tmp_path):
    path = tmp_path / "out.json"
    command = [forking_python, ROOT / "benchmarks/bench.py", "--quick", "--cases", "one token, training"]
    done = limited.run(list(map(str, [*command, "--json", path])), encoding="utf-8")
    assert done.returncode == 0 and "these times and ratios say nothing about speed" in done.stdout, done.stderr
    assert [row.case for row in read(path).rows] == ["one token"] * 3 * (10 + 11 + 11) + ["training"] * 6


@pytest.mark.parametrize(
    "options, said",
    [
        (
            {"names": ["decode"]},
            "--cases must be names out of one token, 64 tokens, .*, with commas between, got 'decode'",
        ),
        ({"rounds": 0}, "--rounds must be an integer of at least 1, got 0"),
        ({"threads": 100_000}, "--threads must be at most the number of cores,"),
        ({"kernel": "warp"}, "kernel must be 'auto' or one of "),
        ({"memory": "old"}, "--memory must be 'reused' or 'fresh', got 'old'"),
        ({"device": "tpu"}, "--device must be cpu, cuda or cuda:0, cuda:1 and so on, got 'tpu'"),
        ({"device": "cuda", "threads": 2}, "--threads is for --device cpu, got 2 with --device cuda"),
    ],
)
def test_a_bad_option(options, said):
    with pytest.raises(ValueError, match=said):
        run(**{"quick": True, **options})
