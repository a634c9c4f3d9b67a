"""The host side of a launch, over a driver that counts and does nothing: in a process that has a libcuda of its own."""

import json
import shutil
import sys
from pathlib import Path

import pytest

import limited

pytest.importorskip("triton", reason="triton is not installed; it is for Linux only")

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def measured():
    if shutil.which("cc") is None:
        pytest.skip("there is no C compiler to build the driver with")
    done = limited.run([sys.executable, ROOT / "benchmarks/gpu_host.py", "--rounds", "1", "--json"], cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def test_a_call_is_one_launch_of_many_programs(measured):
    """Positions of int32 too; 32 heads of q and 8 of k, each four in a program for one token."""
    calls = {name: row for name, row in measured["calls"].items() if "launches" in row}
    assert len(calls) == 5
    assert {(row["launches"], row["programs"]) for row in calls.values()} == {(1, 10)}


def test_the_short_way_launches_what_the_long_one_does(measured):
    """The same code with the same numbers, and the same addresses but for new results."""
    if not measured["same"]:
        pytest.skip("this Triton hands arguments over in C, where nothing can be compared")
    assert measured["same"] == dict.fromkeys(measured["calls"].keys() - {"two new tensors"}, True)


def test_nothing_is_compiled_while_serving(measured):
    """Three sizes of programs, by tables and by positions, rows of one axis and of two."""
    assert measured["compiled"] == {"by the warm-up": 12, "by serving": 0}
