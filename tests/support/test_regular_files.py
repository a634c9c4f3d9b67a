"""Files of others are read where they are files, and nothing waits for what is none."""

import os

import pytest

from phasor.support.regular_files import opened, read_file


def test_all_bytes_of_a_file_and_through_a_link(tmp_path):
    (tmp_path / "file").write_bytes(data := os.urandom(100_000))
    (tmp_path / "link").symlink_to("file")
    assert read_file(tmp_path / "file") == read_file(tmp_path / "link") == data


@pytest.mark.parametrize(
    "name, kind", [("pipe", "a pipe"), ("folder", "a folder"), ("/dev/zero", "a device or a socket")]
)
def test_pipes_folders_and_devices_are_refused(name, kind, tmp_path):
    """A pipe that nobody writes to would be waited for, and zeros have no end."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match=f"{name}: must be a regular file, and is {kind}$"):
        read_file(tmp_path / name)


def test_what_cannot_be_opened_is_named_and_no_descriptor_is_left(tmp_path):
    (tmp_path / "circle").symlink_to("circle")
    before = len(os.listdir("/dev/fd"))
    for name, why in (("absent", "No such file or directory"), ("circle", "Too many levels of symbolic links")):
        with pytest.raises(ValueError, match=rf"{name}: cannot be opened \({why}\)"):
            read_file(tmp_path / name)
    with pytest.raises(ValueError, match="must be a regular file"), opened(tmp_path):
        pass
    assert len(os.listdir("/dev/fd")) == before
