"""A disk that is full or cannot be written, a target in the way: one clear error, and nothing is lost."""

import errno
import os
from pathlib import Path

import pytest

import limited
from phasor.tools.checkpoints import carry_out, convert, make_plan

from . import synthetic
from .models import contents

SIZES = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "wide": 256, "per_shard": 1}  # 590 kB


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return synthetic.write(tmp_path_factory.mktemp("disks") / "source", **SIZES)


@pytest.fixture
def disk(tmp_path):
    """A small file system of its own in memory."""
    at = tmp_path / "disk"
    at.mkdir()
    if limited.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", at]).returncode:
        pytest.skip("needs the right to mount a small tmpfs")
    yield at
    limited.run(["umount", at], check=True)


def test_a_disk_that_is_too_small_is_told_before_anything_is_written(source, disk):
    with pytest.raises(OSError, match=r"cannot hold .* KiB more, .* KiB are free; make room first"):
        convert(source, disk / "out", to="interleaved")
    assert not (disk / "out").exists()


def test_a_disk_that_fills_up(source, disk, monkeypatch):
    monkeypatch.setattr("phasor.tools.checkpoints.run.check_room", lambda folder, needed: None)
    with pytest.raises(OSError, match=r"cannot write \(No space left on device\); .*out is untouched"):
        convert(source, disk / "out", to="interleaved")
    assert not list(disk.iterdir())
    limited.run(["mount", "-o", "remount,size=4m", disk], check=True)
    convert(source, disk / "out", to="interleaved")
    convert(source, disk / "again", to="interleaved")
    assert contents(disk / "out") == contents(disk / "again") and not list(disk.glob("*partial*"))


def test_a_target_that_is_read_only(source, disk):
    limited.run(["mount", "-o", "remount,ro", disk], check=True)
    with pytest.raises(OSError, match="Read-only file system"):
        convert(source, disk / "out", to="interleaved")


def test_targets_that_are_refused(source, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").write_text("mine")
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "busy.phasor-partial").mkdir()
    (tmp_path / "busy.phasor-partial/other").write_text("")
    (tmp_path / "pipes").mkdir()
    for path in ("pipe.phasor-partial", "pipes/config.json"):
        os.mkfifo(tmp_path / path)
    for name, force, message in [
        ("full", False, "exists; choose another name, or replace it with --force"),
        ("full", True, "holds thesis.txt, which this conversion does not write"),
        ("file", True, "must be a new folder, and is a file"),
        ("link", True, "is a link, which is never written through"),
        ("busy", False, "holds other, which no conversion left there"),
        ("pipe", False, "is in the way, and not what a conversion left"),
        ("pipes", True, "holds config.json, which this conversion does not write"),
        (os.path.relpath(".", tmp_path), False, "must not be the folder you are in"),
        ("../" + source.parent.name + "/source/inside", False, "must not be the source, inside it or around it"),
    ]:
        with pytest.raises(ValueError, match=message):
            convert(source, tmp_path / name, to="interleaved", force=force)
    with pytest.raises(ValueError, match="must not be the source"):
        convert(source, source, to="interleaved", force=True)
    assert (tmp_path / "full/thesis.txt").read_text() == "mine" and not (tmp_path / "elsewhere").exists()


def test_an_empty_folder_is_filled_and_an_older_conversion_replaced(source, tmp_path):
    (tmp_path / "out").mkdir(0o700)
    convert(source, tmp_path / "out", to="interleaved")
    first = contents(tmp_path / "out")
    convert(source, tmp_path / "out", to="interleaved", force=True)
    assert contents(tmp_path / "out") == first and (tmp_path / "out").stat().st_mode & 0o777 == 0o700


def test_links_are_read_and_never_written_through(source, tmp_path):
    """A hub's cache: snapshots of links to blobs."""
    blobs, snapshot = synthetic.copy(source, tmp_path / "blobs"), tmp_path / "snapshot"
    snapshot.mkdir()
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(path)
    convert(snapshot, tmp_path / "out", to="interleaved")
    assert contents(blobs) == contents(source) and not any(p.is_symlink() for p in (tmp_path / "out").iterdir())


def test_two_at_once(source, tmp_path):
    from phasor.support.lock import alone

    said = r"out.phasor-partial must be used by one process at a time, and process \d+ is at work in it; wait"
    busy = pytest.raises(ValueError, match=said)
    with alone(tmp_path / "out.phasor-partial"), busy:
        convert(source, tmp_path / "out", to="interleaved")
    convert(source, tmp_path / "out", to="interleaved")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_a_folder_that_its_owner_takes_away_meanwhile_is_made_again(tmp_path, monkeypatch):
    from phasor.support import lock

    theirs, gone = lock.fcntl.flock, []

    def late(file, how):
        if not gone:
            gone.append((tmp_path / "f" / lock.LOCK).unlink())
            (tmp_path / "f").rmdir()
        theirs(file, how)

    monkeypatch.setattr(lock.fcntl, "flock", late)
    with lock.alone(tmp_path / "f"):
        assert (tmp_path / "f" / lock.LOCK).exists()


def test_a_small_file_that_does_not_fit_leaves_what_was_there(disk):
    from phasor.support.whole_files import write_whole

    write_whole(disk / "page.html", b"before")
    with pytest.raises(
        OSError, match=r"cannot write \(No space left on device\); what was .* untouched: '.*page.html'"
    ):
        write_whole(disk / "page.html", bytes(2**20))
    assert contents(disk) == {"page.html": b"before"}


def test_a_file_system_without_locks(source, tmp_path, monkeypatch):
    """Lustre and NFS may have none; that is no other process."""
    from phasor.support import lock

    def none(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(lock.fcntl, "flock", none)
    convert(source, tmp_path / "out", to="interleaved")
    assert (tmp_path / "out/phasor-proof.json").exists()


def test_a_source_that_changes_meanwhile(source, tmp_path):
    folder = synthetic.copy(source, tmp_path / "source")
    shard = folder / "model-00002-of-00002.safetensors"

    def touch(done: int) -> None:
        os.utime(shard, (1, 1))

    with pytest.raises(ValueError, match="changed while it was converted; run it again"):
        carry_out(make_plan(folder, "interleaved"), tmp_path / "out", tell=touch)
    assert not (tmp_path / "out").exists()


def test_a_wrong_conversion_is_not_put_in_place(source, tmp_path, monkeypatch):
    """The proof is what decides: bytes of the staged files are changed before it runs."""
    import phasor.tools.checkpoints.proof as module

    def spoil(at: int) -> None:
        def first(plan, folder: Path, **options):
            with open(folder / "model-00001-of-00002.safetensors", "r+b") as file:
                file.seek(at, 2 if at < 0 else 0)
                byte = file.read(1)
                file.seek(-1, 1)
                file.write(bytes([byte[0] ^ 1]))
            return proved(plan, folder, **options)

        monkeypatch.setattr(module, "prove", first)

    proved = module.prove
    for at, name in ((2000, "q_proj"), (-5, "down_proj")):
        spoil(at)
        with pytest.raises(ValueError, match=f"{name}.weight: its bytes are not those of the source"):
            convert(source, tmp_path / "out", to="interleaved")
        assert not (tmp_path / "out").exists()


def test_what_the_system_does_not_copy_itself_or_only_in_parts_has_the_same_bytes(source, tmp_path, monkeypatch):
    convert(source, tmp_path / "whole", to="interleaved")
    copied, written = os.copy_file_range, os.write

    def in_parts(source, target, count, offset):
        return copied(source, target, min(count, 1000), offset)

    def cannot(number):
        def call(*given):
            raise OSError(number, os.strerror(number))

        return call

    for name, copy in (("parts", in_parts), ("elsewhere", cannot(errno.EXDEV)), ("never", cannot(errno.ENOSYS))):
        monkeypatch.setattr(os, "copy_file_range", copy)
        monkeypatch.setattr(os, "write", lambda fd, data: written(fd, data[:3000]))
        convert(source, tmp_path / name, to="interleaved")
        assert contents(tmp_path / name) == contents(tmp_path / "whole"), name
    monkeypatch.setattr(os, "copy_file_range", cannot(errno.EIO))
    with pytest.raises(OSError, match="Input/output error"):
        convert(source, tmp_path / "broken", to="interleaved")
