"""One process at a time in a folder, whatever became of the one before."""

import os
import signal
import socket
import sys
from pathlib import Path

import pytest

import limited
from phasor.support.lock import LOCK, alone

SOURCE = Path(__file__).resolve().parents[2] / "src"
HOLD = f"""
import sys, time
from pathlib import Path
sys.path.insert(0, {str(SOURCE)!r})
from phasor.support.lock import alone
with alone(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with limited.started(command, stdout=limited.PIPE, text=True) as process:
        assert process.stdout.readline() == "held\n"
        yield process


def test_a_second_process_is_refused_and_told_of_the_first(tmp_path, holder):
    with (
        pytest.raises(ValueError, match=rf"must be used by one process at a time, and process {holder.pid} is at work"),
        alone(tmp_path),
    ):
        pytest.fail("two in one folder")
    assert (tmp_path / LOCK).read_text() == f"{holder.pid}\n"


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_dead_process_held_is_taken_over(tmp_path, holder, how):
    holder.send_signal(how)
    holder.wait(limited.LIMIT)
    assert (tmp_path / LOCK).exists()
    with alone(tmp_path):
        assert (tmp_path / LOCK).read_text() == f"{os.getpid()}\n"
    assert list(tmp_path.iterdir()) == []


def test_the_folder_is_made_and_left_clean(tmp_path):
    with pytest.raises(RuntimeError), alone(tmp_path / "a" / "b"):
        raise RuntimeError
    assert list((tmp_path / "a" / "b").iterdir()) == []
    with alone(tmp_path / "a" / "b"), pytest.raises(ValueError, match="one process at a time"), alone(tmp_path / "a/b"):
        pass


def test_a_lock_that_its_owner_deletes_meanwhile_keeps_nobody_out(tmp_path, monkeypatch):
    """Between our opening of the file and our lock on it the owner is done: the file we hold is no longer there."""
    from phasor.support import lock

    real, deleted = lock.fcntl.flock, []

    def late(file, how):
        if not deleted:
            deleted.append(True)
            (tmp_path / LOCK).unlink()
        real(file, how)

    monkeypatch.setattr(lock.fcntl, "flock", late)
    with alone(tmp_path), open(tmp_path / LOCK) as file, pytest.raises(BlockingIOError):
        real(file, lock.fcntl.LOCK_EX | lock.fcntl.LOCK_NB)
    assert deleted


@pytest.mark.parametrize("kind", ["a link", "a link to nothing", "a pipe", "a folder", "a device or a socket"])
def test_what_is_no_lock_of_ours_is_named_and_stays_as_it_is(kind, tmp_path):
    mine, lock = tmp_path / "mine", tmp_path / LOCK
    if kind == "a link":
        mine.write_text("precious")
    with socket.socket(socket.AF_UNIX) as local:
        {
            "a pipe": os.mkfifo, "a folder": os.mkdir, "a device or a socket": lambda path: local.bind(str(path)),
        }.get(kind, lambda path: path.symlink_to(mine))(lock)  # fmt: skip
        before = os.lstat(lock).st_mode
        refused = pytest.raises(ValueError, match=f"{LOCK}: must be a regular file.* is {kind[:6]}.*; remove it")
        with refused, alone(tmp_path):
            pass
    assert os.lstat(lock).st_mode == before
    assert mine.read_text() == "precious" if kind == "a link" else not mine.exists()
