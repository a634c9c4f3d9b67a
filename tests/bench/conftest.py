"""A clock that stands in for that of a GPU, and a run without the libraries that few have."""

import sys
from importlib import import_module

import pytest

from blocks import ROOT

sys.path.append(str(ROOT / "benchmarks"))

from timing.gpu.libraries import LIBRARIES
from timing.measure import Clock


class StandIn(Clock):
    """A clock of this machine's CPU that moves by itself: each instant is a second later than the last."""

    device = "cpu"

    def __init__(self):
        self.moment, self.waits, self.graphs = 0.0, 0, []

    def about(self):
        return {"name": "a stand-in", "capability": "0.0"}

    def now(self):
        self.moment += 1.0
        return self.moment

    def before(self):
        self.waits += 1

    def captured(self, call, times):
        self.graphs.append(times)
        return lambda: [call() for _ in range(times)]


@pytest.fixture
def no_peers(monkeypatch):
    """Only transformers and torch: the compiler takes long."""
    monkeypatch.setattr("timing.gpu.cases.LIBRARIES", LIBRARIES[:1])
    monkeypatch.setattr(import_module("timing.run"), "GPU_LIBRARIES", LIBRARIES[:1])
