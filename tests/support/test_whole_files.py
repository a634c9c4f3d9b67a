"""Small files are whole or absent, and a write that fails leaves nothing beside them."""

import errno
import os
import stat

import pytest

from phasor.support.whole_files import remove_partial, sync_folder, write_whole


@pytest.fixture
def path(tmp_path):
    (tmp_path / "file").write_bytes(b"old")
    return tmp_path / "file"


def full(*_):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def stopped(*_):
    raise KeyboardInterrupt


def test_data_is_on_the_disk_before_it_has_its_name_and_the_name_afterwards(path, monkeypatch):
    steps, sync, replace = [], os.fsync, os.replace

    def synced(fd):
        about = os.fstat(fd)
        steps.append("folder" if stat.S_ISDIR(about.st_mode) else f"{about.st_size} bytes")
        sync(fd)

    def named(partial, whole):
        steps.append("name")
        replace(partial, whole)

    monkeypatch.setattr("os.fsync", synced)
    monkeypatch.setattr("os.replace", named)
    write_whole(path, b"newer")
    assert steps == ["5 bytes", "name", "folder"]
    assert path.read_bytes() == b"newer" and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_a_failed_write_changes_nothing(call, path, monkeypatch):
    monkeypatch.setattr(call, full)
    said = rf"cannot write \(No space left on device\); what was there before is untouched: '{path}'"
    with pytest.raises(OSError, match=said) as error:
        write_whole(path, b"new")
    assert error.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old" and list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("call", ["os.fsync", "os.replace"])
def test_a_write_that_is_interrupted_changes_nothing(call, path, monkeypatch):
    monkeypatch.setattr(call, stopped)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old" and list(path.parent.iterdir()) == [path]


def test_two_processes_do_not_share_a_file_to_be(path, monkeypatch):
    monkeypatch.setattr("os.getpid", lambda: 77)
    seen = []
    monkeypatch.setattr("os.replace", lambda partial, whole: seen.append(partial.name))
    write_whole(path, b"")
    assert seen == ["file.77.partial"]


def test_what_killed_processes_left_is_removed_and_nothing_else(path):
    (path.parent / "inner").mkdir()
    others = ["filed.5.partial", "file.mine.partial", "file.5", "inner/file.5.partial"]
    for name in ("file.5.partial", "file.77.partial", "inner/other.5.partial", *others):
        (path.parent / name).touch()
    remove_partial(path.parent, "file", "inner/other", "absent", "nowhere/file")
    left = {str(p.relative_to(path.parent)) for p in path.parent.rglob("*") if p.is_file()}
    assert left == {"file", *others}


def test_its_folder_is_made_or_the_error_says_what_is_in_the_way(path, tmp_path):
    write_whole(tmp_path / "new/folder/file", b"x")
    assert (tmp_path / "new/folder/file").read_bytes() == b"x"
    for below in (path / "page", path / "more/page"):
        with pytest.raises(OSError, match=rf"cannot write \(Not a directory\); .*: '{below}'$"):
            write_whole(below, b"x")
    with pytest.raises(OSError, match=rf"cannot write \(Is a directory\); .*: '{tmp_path}/new'$"):
        write_whole(tmp_path / "new", b"x")
    assert path.read_bytes() == b"old" and sorted(p.name for p in tmp_path.iterdir()) == ["file", "new"]


def test_a_system_where_no_folder_can_be_opened(path, monkeypatch):
    monkeypatch.delattr("os.O_DIRECTORY")
    write_whole(path, b"new")
    assert path.read_bytes() == b"new"


def test_a_folder_that_cannot_be_synced_is_named_and_left_closed(tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr("os.fsync", lambda fd: full(opened.append(fd)))
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}'$"):
        sync_folder(tmp_path)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
