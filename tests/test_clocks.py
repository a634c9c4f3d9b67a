"""No test depends on how fast a machine is: those that kill at any moment of a measured time are run as if the machine
had become ten times faster or slower since it was measured, in a time that is only counted."""

import pytest

from runs import test_kills as trainings

SPEEDS = pytest.mark.parametrize("speed", [0.1, 1.0, 10.0])
SECONDS = 4.0  # that a run took when it was measured


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Training:
    """A process that ends after so many seconds, or when it is killed."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock, self.end, self.killed = clock, clock.now + seconds, False

    @property
    def exitcode(self) -> int | None:
        return -9 if self.killed else 0 if self.clock.now >= self.end else None

    def kill(self) -> None:
        self.killed = True

    def join(self) -> None:
        if not self.killed:
            self.clock.now = max(self.clock.now, self.end)


@SPEEDS
@pytest.mark.parametrize("kills", [3, 20])
def test_killed_trainings_end_on_a_machine_of_any_speed(kills, speed, tmp_path, monkeypatch):
    clock, killed = Clock(), []

    def start(kind, folder):
        killed.append(Training(clock, SECONDS / speed))
        return killed[-1]

    monkeypatch.setattr(trainings, "time", clock)
    monkeypatch.setattr(trainings, "contents", lambda folder: {})
    trainings.test_a_killed_training_ends_with_the_same_bytes(tmp_path, start, lambda kind: (SECONDS, {}), "lab", kills)
    assert sum(process.killed for process in killed) == kills and len(killed) < 200 * kills
