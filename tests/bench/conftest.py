"""A clock that stands in for that of a GPU, and a run without the libraries that few have."""

import pytest

from phasor.apps.bench.gpu import Clock
from phasor.apps.bench.gpu.peers import PEERS


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
    monkeypatch.setattr("phasor.apps.bench.gpu.cases.PEERS", PEERS[:1])
    monkeypatch.setattr("phasor.apps.bench.gpu.run.PEERS", PEERS[:1])
