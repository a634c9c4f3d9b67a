"""Killed at any moment: the source is what it was, the target is whole or not there, and the next run ends the same."""

import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import limited
from phasor.support.whole_files import write_whole
from phasor.tools.checkpoints import convert, convert_in_place

from . import synthetic
from .models import contents

SIZES = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "wide": 256, "per_shard": 1}


class Zygote:
    """A process that has imported phasor, and forks a conversion on request."""

    def __init__(self, process: limited.Process) -> None:
        self.process = process
        assert self._line() == "ready"

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def run(self, after: float = 0.0, **request: Any) -> int:
        """The exit code of one conversion; killed ``after`` so many seconds if that is not 0."""
        assert self.process.stdin is not None
        print(json.dumps({key: str(v) if isinstance(v, Path) else v for key, v in {**request, "after": after}.items()}),
            file=self.process.stdin, flush=True)  # fmt: skip
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
def whole(zygote: Zygote, source: Path) -> tuple[dict[str, bytes], float]:
    """What an undisturbed run writes, its proof too, and how long it takes."""
    started = time.perf_counter()
    assert zygote.run(source=source, target=source.with_name("whole"), to="interleaved") == 0
    return everything(source.with_name("whole")), time.perf_counter() - started


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def check(zygote: Zygote, source: Path, target: Path, before: dict[str, bytes], whole: dict[str, bytes]) -> None:
    """After a kill: nothing half, and the next run ends as if nothing had been."""
    assert contents(source) == before
    assert not target.exists() or everything(target) == whole
    code = zygote.run(source=source, target=target, to="interleaved")
    assert code == 0 or (code == 2 and target.exists())  # it exists: the kill came after the last step
    assert everything(target) == whole
    assert not list(target.parent.glob(f"{target.name}.phasor-partial/files"))


def write_and_die(name: str) -> Any:
    """Of a small file of that name a process that is killed leaves half; all others are written."""

    def write(path: Path, data: bytes) -> None:
        if path.name != name:
            return write_whole(path, data)
        path.with_name(f"{name}.7.partial").write_bytes(data[: len(data) // 2])
        raise SystemExit

    return write


@pytest.mark.parametrize("module, name", [("run", "journal.json"), ("run", "phasor-proof.json")])
def test_half_of_a_small_file_is_not_in_the_way_and_not_in_the_target(module, name, source, tmp_path, monkeypatch):
    """Whether the next run writes that file or not."""
    monkeypatch.setattr(f"phasor.checkpoints.{module}.write_whole", write_and_die(name))
    with pytest.raises(SystemExit):
        convert(source, tmp_path / "out", to="interleaved")
    assert [path.name for path in tmp_path.rglob("*.partial")] == [f"{name}.7.partial"]
    monkeypatch.undo()
    convert(source, tmp_path / "out", to="interleaved", proof=False)
    convert(source, tmp_path / "undisturbed", to="interleaved", proof=False)
    assert everything(tmp_path / "out") == everything(tmp_path / "undisturbed")


@pytest.mark.parametrize("name", ["phasor.json", "phasor-proof.json", "config.json"])
def test_half_of_a_small_file_does_not_stay_in_place(name, source, tmp_path, monkeypatch):
    folder = synthetic.copy(source, tmp_path / "folder")
    monkeypatch.setattr("phasor.tools.checkpoints.in_place.write_whole", write_and_die(name))
    with pytest.raises(SystemExit):
        convert_in_place(folder, to="interleaved")
    assert (folder / f"{name}.7.partial").exists()
    monkeypatch.undo()
    convert_in_place(folder, to="interleaved", proof=False)
    convert(source, tmp_path / "undisturbed", to="interleaved", proof=False)
    assert everything(folder) == everything(tmp_path / "undisturbed")


EVERY = [pytest.param(5, id="some"), pytest.param(1, id="all", marks=pytest.mark.slow)]


@pytest.mark.parametrize("step", EVERY)
def test_killed_before_every_call_that_changes_something(step, zygote, source, whole, tmp_path):
    before = contents(source)
    for at in range(1, 1000, step):
        target = tmp_path / f"at{at}"
        code = zygote.run(source=source, target=target, to="interleaved", at=at)
        check(zygote, source, target, before, whole[0])
        if code == 0:
            break
        assert code == -signal.SIGKILL
    assert at > 25  # or the calls were not counted


def kill_at_random(zygote, source, whole, folder, kills):
    before, made, struck = contents(source), random.Random(0), 0
    for i in range(100 * kills):  # some come too late, on a fast machine most
        if struck >= kills:
            return
        target = folder / f"random{i}"
        while made.random() < 0.8:  # several kills one after the other, too
            code = zygote.run(after=made.uniform(0.001, 1.1 * whole[1]), source=source, target=target, to="interleaved")
            struck += code == -signal.SIGKILL
        check(zygote, source, target, before, whole[0])
    raise AssertionError(f"of {100 * kills} runs {struck} were killed in time")


def test_killed_at_random_moments(zygote, source, whole, tmp_path):
    kill_at_random(zygote, source, whole, tmp_path, 5)


@pytest.mark.slow
def test_killed_at_two_hundred_random_moments(zygote, source, whole, tmp_path):
    kill_at_random(zygote, source, whole, tmp_path, 200)


@pytest.mark.parametrize("kills", [6, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_inside_a_write(kills, zygote, source, whole, tmp_path):
    """A random call that writes is cut at a random byte; half of the runs are in place, some are cut twice."""
    before, dice = contents(source), random.Random(kills)
    expected = {n: d for n, d in whole[0].items() if n != "phasor-proof.json"}
    for number in range(kills):
        folder = tmp_path / str(number)
        in_place = number % 2 == 1
        if in_place:
            synthetic.copy(source, folder)
        request = {"source": folder if in_place else source, "target": "" if in_place else folder, "to": "interleaved"}
        calls = 9 if in_place else 12  # as many as there are in a run
        codes = [zygote.run(**request, at=dice.randint(1, calls), share=dice.random())]
        if dice.random() < 0.3:
            codes.append(zygote.run(**request, at=dice.randint(1, 4), share=dice.random()))
        assert codes[0] == -signal.SIGKILL
        if in_place:
            assert not (folder / "config.json").exists() or contents(folder).items() >= before.items()
            assert zygote.run(**request) == 0
            assert contents(folder) == expected
        else:
            check(zygote, source, folder, before, whole[0])


@pytest.mark.parametrize("step", EVERY)
def test_killed_while_it_replaces(step, zygote, source, whole, tmp_path):
    """With --force, what was there before is there until the new files are."""
    for at in range(3, 400, step):
        target = tmp_path / f"at{at}"
        target.mkdir()
        (target / "config.json").write_text("old")
        code = zygote.run(source=source, target=target, to="interleaved", force=True, at=at, names_only=True)
        held = everything(target) if target.exists() else {}
        assert (
            held in (whole[0], {"config.json": b"old"})
            or (target.with_name(f"at{at}.phasor-partial") / "replaced").exists()
        )
        assert zygote.run(source=source, target=target, to="interleaved", force=True) == 0
        assert everything(target) == whole[0]
        if code == 0:
            break
    assert at > 5


@pytest.mark.parametrize("step", EVERY)
def test_killed_in_place(step, zygote, source, whole, tmp_path):
    """A folder that is half of each has no config.json; the next run ends it, to the same bytes."""
    plain, expected = contents(source), {n: d for n, d in whole[0].items() if n != "phasor-proof.json"}
    for at in range(2, 400, step):
        folder = tmp_path / f"at{at}"
        synthetic.copy(source, folder)
        code = zygote.run(source=folder, target="", to="interleaved", at=at)
        held = {n: d for n, d in contents(folder).items() if not n.startswith("phasor-in-place")}
        weights = {n: d for n, d in held.items() if n.endswith(".safetensors")}
        if "config.json" in held and "phasor.json" not in held:
            assert all(plain[name] == data for name, data in weights.items())
        elif "config.json" in held:
            assert all(expected[name] == data for name, data in weights.items())
        again = zygote.run(source=folder, target="", to="interleaved")
        assert again == 0 or (again == 2 and not (folder / "phasor-in-place.journal").exists())
        assert contents(folder) == expected
        if code == 0:
            break
    assert at > 20
