"""Killed at any moment: the source is what it was, the target whole or absent, the next run as if none had been."""

import json
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import limited

from . import synthetic
from .models import contents

SIZES = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "wide": 256, "per_shard": 1}
OLD = {"config.json": b"old"}


class Zygote:
    """A process that has imported phasor, and forks a conversion on request."""

    def __init__(self, process: limited.Process) -> None:
        self.process = process
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, source: Path, target: Path, **request: Any) -> int:
        """The exit code of one conversion."""
        assert self.process.stdin is not None
        line = json.dumps({"source": str(source), "target": str(target), **request})
        print(line, file=self.process.stdin, flush=True)
        return int(self._line())


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    command = [sys.executable, str(Path(__file__).with_name("child.py"))]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with limited.started(command, stdin=limited.PIPE, stdout=limited.PIPE, text=True, env=env) as process:
        yield Zygote(process)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("kills") / "source", **SIZES)


@pytest.fixture(scope="module")
def whole(zygote: Zygote, source: Path) -> dict[str, bytes]:
    """What an undisturbed run writes, its proof too."""
    assert zygote.run(source, source.with_name("whole")) == 0
    return everything(source.with_name("whole"))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def killed(zygote, source, whole, target, *, old: bool = False, **request: Any) -> bool:
    """Whether one run was killed; nothing is half then, and the next run ends as if nothing had been."""
    before, partial = contents(source), target.with_name(f"{target.name}.phasor-partial")
    if old:
        target.mkdir()
        (target / "config.json").write_bytes(OLD["config.json"])
    code = zygote.run(source, target, force=old, **request)
    assert code in (0, -signal.SIGKILL) and contents(source) == before
    held = everything(target) if target.exists() else everything(partial / "replaced") if old else whole
    assert held in ((whole, OLD) if old else (whole,))
    assert zygote.run(source, target, force=True) == 0
    assert everything(target) == whole and not partial.exists()
    return code != 0


EVERY = [pytest.param(5, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]


@pytest.mark.parametrize("old", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize("step", EVERY)
def test_killed_before_every_call_that_changes_something(step, old, zygote, source, whole, tmp_path):
    """With --force, what was there before is there until the new files are."""
    calls = range(1, 1000, step)
    last = next(at for at in calls if not killed(zygote, source, whole, tmp_path / f"at{at}", old=old, at=at))
    assert last > 25  # or the calls were not counted


@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_inside_a_write(kills, zygote, source, whole, tmp_path):
    """A random call that writes is cut at a random byte."""
    dice = random.Random(kills)
    for number in range(kills):
        at = {"at": dice.randint(1, 12), "share": dice.random()}
        assert killed(zygote, source, whole, tmp_path / str(number), old=dice.random() < 0.5, **at)


def test_what_was_replaced_comes_back_before_it_is_asked_whether_to_replace_it(zygote, source, whole, tmp_path):
    """Killed between the two renames of a run with --force; the next one has no --force."""
    partial = tmp_path / "out.phasor-partial"
    (partial / "replaced").mkdir(parents=True)
    (partial / "replaced/config.json").write_bytes(OLD["config.json"])
    assert zygote.run(source, tmp_path / "out") == 2
    assert everything(tmp_path / "out") == OLD


def test_what_was_replaced_goes_where_the_new_folder_is_there(zygote, source, whole, tmp_path):
    """Killed after the second rename."""
    partial = tmp_path / "out.phasor-partial"
    for folder in (partial / "replaced", tmp_path / "out"):
        folder.mkdir(parents=True)
        (folder / "config.json").write_bytes(OLD["config.json"])
    assert zygote.run(source, tmp_path / "out", force=True) == 0
    assert everything(tmp_path / "out") == whole and not partial.exists()
