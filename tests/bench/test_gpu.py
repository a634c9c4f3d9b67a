"""A run on a GPU, with a clock that only stands in for one: all but the device's time is the same."""

import pytest
import torch
from timing import gpu, read, run, write


class StandIn:
    """A clock that moves by itself: each instant is a second later than the last."""

    device = "cpu"

    def __init__(self):
        self.moment = 0.0

    def about(self):
        return {"name": "a stand-in", "capability": "0.0"}

    def now(self):
        self.moment += 1.0
        return self.moment

    def before(self):
        pass

    def captured(self, call):
        return lambda: [call() for _ in range(gpu.GRAPH)]


def broken(work):
    raise RuntimeError("no kernel image\nfor this device")


@pytest.fixture
def record(monkeypatch):
    libraries = {"transformers": gpu.LIBRARIES["transformers"], "broken": ("torch", broken)}
    monkeypatch.setattr(gpu, "LIBRARIES", libraries)
    return run(clock=StandIn(), rounds=1, quick=True, command="bench")


def test_a_run(record, tmp_path):
    assert list(dict.fromkeys(row.case for row in record.rows)) == [case.name for case in gpu.CASES]
    measured = [row.measured for row in record.rows if row.case == "decode-8"]
    assert measured == ["phasor", "phasor - copy_", "transformers"]
    ours = next(row for row in record.rows if row.case == "decode-1")
    assert (ours.us, ours.ratio) == (1e6 / 20, 1.0)  # a second between two instants, for the 20 calls of a graph
    assert record.skipped["broken in vision, bfloat16, halves"] == "RuntimeError: no kernel image for this device"
    write(record, tmp_path / "gpu.json")
    assert read(tmp_path / "gpu.json") == record


def test_what_fails_of_our_own_ends_the_run(monkeypatch):
    monkeypatch.setitem(gpu.OURS, "rotate", broken)
    with pytest.raises(RuntimeError, match="no kernel image"):
        run(["vision"], clock=StandIn(), rounds=1, quick=True)


def test_what_a_step_may_take_more_than_a_copy():
    (case,) = (case for case in gpu.CASES if case.name == "decode-64")
    times = {"phasor": [20 * 5e-6, 20 * 6e-6, 20 * 9e-6], "copy_": [20 * 4e-6, 20 * 5e-6, 20 * 5e-6]}
    _, extra = gpu.ratios(case, "bfloat16", times)
    assert extra.us == pytest.approx(1.0) and extra.ratio == pytest.approx(0.5) and extra.goal.met(extra.ratio)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_without_a_gpu_it_is_one_clear_line():
    with pytest.raises(ValueError, match="--device cuda needs a GPU, and torch "):
        run(["vision"], device="cuda")
