"""Killed at any moment: the source is what it was, the target whole or absent, the next run as if none had been."""

import os
import random
import signal
from pathlib import Path
from typing import Any

import pytest

from phasor.tools.checkpoints import convert

from . import synthetic
from .models import contents

SIZES = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "wide": 256, "per_shard": 1}
OLD = {"config.json": b"old"}
WRITES = "write", "copy_file_range"
CALLS = "rename", "replace", "unlink", "rmdir", "mkdir", "fsync", *WRITES


def deadly(at: int, share: float | None) -> None:
    """Let call number ``at`` of those that change something be the last one, and never happen; with ``share`` that of
    those that write, by a share of its bytes."""
    count = 0

    def wrapped(name: str, call: Any) -> Any:
        def before(*given: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == at:
                if share is not None and name == "write":
                    call(given[0], given[1][: int(share * len(given[1]))])
                elif share is not None:
                    call(*given[:2], int(share * given[2]), *given[3:])
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*given, **options)

        return before

    for name in CALLS if share is None else WRITES:
        setattr(os, name, wrapped(name, getattr(os, name)))


def run(source: Path, target: Path, force: bool = False, at: int = 0, share: float | None = None) -> int:
    """The exit code of a conversion in a process of its own: numpy and plain files, which a fork may use."""
    if not (child := os.fork()):
        code = 2
        try:
            deadly(at, share)
            convert(source, target, to="interleaved", force=force)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic.write(tmp_path_factory.mktemp("kills") / "source", **SIZES)


@pytest.fixture(scope="module")
def whole(source: Path) -> dict[str, bytes]:
    """What an undisturbed run writes, its proof too."""
    convert(source, source.with_name("whole"), to="interleaved")  # here, so that a child finds all imported
    return everything(source.with_name("whole"))


def everything(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def older(folder: Path) -> None:
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(OLD["config.json"])


def killed(source: Path, whole: dict[str, bytes], target: Path, *, old: bool = False, **request: Any) -> bool:
    """Whether one run was killed; nothing is half then, and the next run ends as if nothing had been."""
    before, partial = contents(source), target.with_name(f"{target.name}.phasor-partial")
    if old:
        older(target)
    code = run(source, target, force=old, **request)
    assert code in (0, -signal.SIGKILL) and contents(source) == before
    held = everything(target) if target.exists() else everything(partial / "replaced") if old else whole
    assert held in ((whole, OLD) if old else (whole,))
    assert run(source, target, force=True) == 0
    assert everything(target) == whole and not partial.exists()
    return code != 0


@pytest.mark.parametrize("old", [False, True], ids=["new", "replaced"])
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_before_every_call_that_changes_something(step, old, source, whole, tmp_path):
    """With --force, what was there before is there until the new files are."""
    calls = range(1, 1000, step)
    last = next(at for at in calls if not killed(source, whole, tmp_path / f"at{at}", old=old, at=at))
    assert last > 25  # or the calls were not counted


@pytest.mark.parametrize("kills", [6, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_inside_a_write(kills, source, whole, tmp_path):
    """A random call that writes is cut at a random byte."""
    dice = random.Random(kills)
    for number in range(kills):
        at = {"at": dice.randint(1, 12), "share": dice.random()}
        assert killed(source, whole, tmp_path / str(number), old=dice.random() < 0.5, **at)


def test_killed_between_the_two_renames_and_after_them(source, whole, tmp_path):
    """What was replaced comes back before it is asked whether to replace it, and goes where the new folder is there."""
    partial, out = tmp_path / "out.phasor-partial", tmp_path / "out"
    older(partial / "replaced")
    with pytest.raises(ValueError, match="out: exists; choose another name, or replace it with --force"):
        convert(source, out, to="interleaved")
    assert everything(out) == OLD
    older(partial / "replaced")
    convert(source, out, to="interleaved", force=True)
    assert everything(out) == whole and not partial.exists()
